import errno
import socket

import pytest
import trio

from tandem.client.errors import ConnectionCause
from tandem.client.lost_connection import cause_of, reason_of
from tandem.client.tls import TLSFailedError
from tandem.wire.errors import FrameTooLargeError

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Error connecting to ('10.0.0.1', 1): no")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (REFUSED, ConnectionCause.ENDED),
        (TLSFailedError("not trusted"), ConnectionCause.TLS),
        (FrameTooLargeError("frame", 20, 10), ConnectionCause.MALFORMED),
    ],
)
def test_a_cause_is_told_by_the_error(error: BaseException, cause: ConnectionCause) -> None:
    assert cause_of(error, ConnectionCause.ENDED) is cause


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (REFUSED, "Connection refused"),
        (
            caused(OSError("all failed"), ExceptionGroup("", [OSError("a"), REFUSED])),
            "Connection refused",
        ),
        (caused(ValueError("broken"), REFUSED), "Connection refused"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "Name or service not known",
        ),
        (TimeoutError("timed out"), "timed out"),
        (TLSFailedError("its certificate is not trusted"), "its certificate is not trusted"),
        (EOFError(), "EOFError"),
        (trio.BrokenResourceError(), "BrokenResourceError"),
    ],
)
def test_the_systems_words_come_without_addresses_and_numbers(
    error: BaseException, reason: str
) -> None:
    assert reason_of(error) == reason
