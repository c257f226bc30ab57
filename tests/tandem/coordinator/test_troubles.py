import ssl

import httpcore
import pytest

from tandem.coordinator.interface import CoordinatorUnavailableError
from tandem.coordinator.troubles import NotSentError, broken_in_words

HTTP, HTTPS = "http://c:1", "https://c:1"


def words_of(error: Exception, cause: Exception | None = None, endpoint: str = HTTP) -> str:
    with pytest.raises(CoordinatorUnavailableError) as caught, broken_in_words(endpoint):
        raise error from cause
    return str(caught.value)


def test_without_a_connection_nothing_was_sent() -> None:
    refused = ConnectionRefusedError(111, "[Errno 111] a tuple of Python")
    words = r"no connection to http://c:1: Connection refused$"
    with pytest.raises(NotSentError, match=words), broken_in_words(HTTP):
        raise httpcore.ConnectError from refused


def test_a_connection_that_broke_may_have_carried_the_request() -> None:
    with pytest.raises(CoordinatorUnavailableError) as caught, broken_in_words(HTTP):
        raise httpcore.RemoteProtocolError("it spoke nonsense.")
    assert not isinstance(caught.value, NotSentError)
    assert str(caught.value) == "the connection to http://c:1 broke: it spoke nonsense"


def test_silence_of_the_other_side_has_words_too() -> None:
    assert words_of(httpcore.ReadError()).endswith("closed by the other side")
    assert "set cert_file and key_file" in words_of(httpcore.ReadError(), endpoint=HTTPS)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Hostname mismatch, certificate is not valid", "name it in endpoints"),
        ("certificate verify failed: self-signed", "set ca_file"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "its endpoints begin with http://"),
    ],
)
def test_troubles_of_tls_come_with_a_remedy(reason: str, remedy: str) -> None:
    assert remedy in words_of(httpcore.ConnectError(), ssl.SSLError(1, reason), HTTPS)


def test_of_the_addresses_of_a_name_one_speaks_for_all() -> None:
    group = ExceptionGroup("all failed", [OSError("first"), OSError("second")])
    assert words_of(httpcore.ConnectError(), group) == "no connection to http://c:1: first"


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(KeyError), broken_in_words(HTTP):
        raise KeyError
