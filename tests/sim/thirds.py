"""Which of many runs the ordinary suite plays: about a third, always the same ones.

A name decides by its checksum, and not a place in a list: what somebody adds changes nothing for
the others.
"""

from zlib import crc32


def is_ordinary(kind: str, name: str) -> bool:
    """Whether the ordinary suite plays this one."""
    return crc32(f"{kind} {name}".encode()) % 3 == 0
