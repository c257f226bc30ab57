import ssl

import httpcore
import pytest

from tandem.coordinator.interface import CoordinatorUnavailableError, NoAnswer
from tandem.coordinator.troubles import NotSentError, TLSTrouble, broken_in_words

HTTP, HTTPS = "http://c:1", "https://c:1"


def words_of(error: Exception, cause: Exception | None = None, endpoint: str = HTTP) -> str:
    return str(raised_for(error, cause, endpoint))


def raised_for(
    error: Exception, cause: Exception | None = None, endpoint: str = HTTP
) -> CoordinatorUnavailableError:
    with pytest.raises(CoordinatorUnavailableError) as caught, broken_in_words(endpoint):
        raise error from cause
    return caught.value


def test_without_a_connection_nothing_was_sent() -> None:
    refused = ConnectionRefusedError(111, "[Errno 111] a tuple of Python")
    error = raised_for(httpcore.ConnectError(), refused)
    assert isinstance(error, NotSentError)
    assert (error.cause, error.tls) == (NoAnswer.NO_CONNECTION, None)
    assert str(error) == "no connection to http://c:1: Connection refused"


def test_a_connection_that_broke_may_have_carried_the_request() -> None:
    error = raised_for(httpcore.RemoteProtocolError("it spoke nonsense."))
    assert not isinstance(error, NotSentError)
    assert error.cause is NoAnswer.BROKEN


def test_silence_of_the_other_side_has_words_too() -> None:
    assert words_of(httpcore.ReadError()).endswith("closed by the other side")
    assert "set cert_file and key_file" in words_of(httpcore.ReadError(), endpoint=HTTPS)


@pytest.mark.parametrize(
    ("reason", "trouble"),
    [
        ("Hostname mismatch, certificate is not valid", TLSTrouble.OTHER_NAME),
        ("certificate verify failed: self-signed", TLSTrouble.UNKNOWN_CERTIFICATE),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", TLSTrouble.CLEAR),
    ],
)
def test_troubles_of_tls_come_with_a_remedy(reason: str, trouble: TLSTrouble) -> None:
    error = raised_for(httpcore.ConnectError(), ssl.SSLError(1, reason), HTTPS)
    assert isinstance(error, NotSentError)
    assert error.tls is trouble
    assert str(error).endswith(f"; {trouble.value}")


def test_of_the_addresses_of_a_name_one_speaks_for_all() -> None:
    group = ExceptionGroup("all failed", [OSError("first"), OSError("second")])
    assert words_of(httpcore.ConnectError(), group) == "no connection to http://c:1: first"


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(KeyError), broken_in_words(HTTP):
        raise KeyError
