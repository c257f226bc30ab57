"""Addresses of this machine that no other test uses, whichever checkout or worker it is of."""

import secrets


def own_network() -> str:
    """The first three parts of 254 addresses: Linux has all of 127.0.0.0/8.

    One of 65,000: to meet another is an error that names the port, and no wrong result. 127.0 is
    left out, for that is where clusters of people are.
    """
    return f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"
