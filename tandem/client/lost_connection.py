"""Why a connection was lost, and in which words: of what a stream or socket has raised."""

import os
import ssl

from tandem.client.errors import ConnectionCause
from tandem.client.tls import TLSFailedError
from tandem.wire.errors import WireError


def cause_of(error: BaseException, otherwise: ConnectionCause) -> ConnectionCause:
    """Return why a connection was lost that ended with `error`."""
    if isinstance(error, TLSFailedError):
        return ConnectionCause.TLS
    if isinstance(error, WireError):
        return ConnectionCause.MALFORMED
    return otherwise


def reason_of(error: BaseException) -> str:
    """Say what happened, in the system's words if it has some."""
    found = error.__cause__ or error
    while isinstance(found, BaseExceptionGroup):
        # One for each address of a name; with one address they are all there is to say.
        found = found.exceptions[-1]
    if isinstance(found, OSError) and not isinstance(found, ssl.SSLError):
        # A negative number is one of names. trio writes the address into the system's words.
        if found.errno is not None and found.errno > 0:
            return os.strerror(found.errno)
        if found.strerror:
            return found.strerror
    return str(found) or type(found).__name__
