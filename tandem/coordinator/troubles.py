"""What can go wrong between a client and its coordinator, in words that say what to do."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import httpcore

from tandem.coordinator.interface import CoordinatorUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TLS_REMEDIES: Final = {
    "mismatch": "name it in endpoints as its certificate does",
    "certificate verify failed": "set ca_file to the certificate that etcd's is signed with",
    "WRONG_VERSION_NUMBER": "if it does not use TLS, its endpoints begin with http://",
}


class NotSentError(CoordinatorUnavailableError):
    """Nobody was there to take the request: it was not done, and may be sent elsewhere."""


@contextmanager
def broken_in_words(endpoint: str) -> Iterator[None]:
    """Turn the errors of httpcore into those of a coordinator.

    Raises:
        NotSentError: there is no connection, so nothing was sent.
        CoordinatorUnavailableError: the connection broke; the request may have been carried out.
    """
    try:
        yield
    except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
        words = _words(error, type(error).__name__)
        raise NotSentError(f"no connection to {endpoint}: {words}") from error
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise CoordinatorUnavailableError(
            f"the connection to {endpoint} broke: {_words(error, _without_words(endpoint))}"
        ) from error


def _without_words(endpoint: str) -> str:
    if endpoint.startswith("https:"):
        # A server that wants a certificate says so in an alert, which a reset may overtake.
        return "closed by the other side; if it wants a certificate, set cert_file and key_file"
    return "closed by the other side"


def _words(error: BaseException, words: str) -> str:
    """What the innermost cause says; those around it say that there was one."""
    cause: BaseException | None = error
    while cause is not None:
        words = str(cause) or words
        if isinstance(cause, ConnectionError | TimeoutError) and cause.errno:
            words = os.strerror(cause.errno)  # what trio adds is a tuple of Python
        if isinstance(cause, ssl.SSLCertVerificationError):
            words = f"certificate verify failed: {cause.verify_message}"
        if isinstance(cause, BaseExceptionGroup):
            # One for each address of a name; they mostly say the same.
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__
    words = words.rstrip(".")
    remedy = next((remedy for part, remedy in _TLS_REMEDIES.items() if part in words), "")
    return f"{words}; {remedy}" if remedy else words
