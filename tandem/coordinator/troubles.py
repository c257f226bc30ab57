"""What can go wrong between a client and its coordinator, in words that say what to do."""

from __future__ import annotations

import enum
import os
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import httpcore

from tandem.coordinator.interface import CoordinatorUnavailableError, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator


class TLSTrouble(enum.Enum):
    """What about TLS keeps a connection from being made; the value is the remedy."""

    OTHER_NAME = "name it in endpoints as its certificate does"
    UNKNOWN_CERTIFICATE = "set ca_file to the certificate that etcd's is signed with"
    CLEAR = "if it does not use TLS, its endpoints begin with http://"


_TLS_TROUBLES: Final = {
    "mismatch": TLSTrouble.OTHER_NAME,
    "certificate verify failed": TLSTrouble.UNKNOWN_CERTIFICATE,
    "WRONG_VERSION_NUMBER": TLSTrouble.CLEAR,
}


class NotSentError(CoordinatorUnavailableError):
    """Nobody was there to take the request: it was not done, and may be sent elsewhere.

    Attributes:
        tls: What about TLS is the reason; None if nothing is known to be.
    """

    def __init__(
        self,
        text: str,
        cause: NoAnswer = NoAnswer.NO_CONNECTION,
        tls: TLSTrouble | None = None,
    ) -> None:
        super().__init__(text, cause)
        self.tls = tls


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
        words, tls = _words(error, type(error).__name__)
        text = f"no connection to {endpoint}: {words}"
        raise NotSentError(text, NoAnswer.NO_CONNECTION, tls) from error
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        words, _ = _words(error, _without_words(endpoint))
        text = f"the connection to {endpoint} broke: {words}"
        raise CoordinatorUnavailableError(text, NoAnswer.BROKEN) from error


def _without_words(endpoint: str) -> str:
    if endpoint.startswith("https:"):
        # A server that wants a certificate says so in an alert, which a reset may overtake.
        return "closed by the other side; if it wants a certificate, set cert_file and key_file"
    return "closed by the other side"


def _words(error: BaseException, words: str) -> tuple[str, TLSTrouble | None]:
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
    tls = next((trouble for part, trouble in _TLS_TROUBLES.items() if part in words), None)
    return (f"{words}; {tls.value}", tls) if tls else (words, None)
