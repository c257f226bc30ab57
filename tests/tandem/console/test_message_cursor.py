import msgspec
import pytest

from tandem.client.admin_results import FoundMessage, MessagePage
from tandem.console.errors import APIError
from tandem.console.message_cursor import cursor_of, next_cursor
from tandem.console.parameters import Parameters
from tests.tandem.client.fake_broker import message_ext


def page(*times: int, is_whole: bool = False) -> MessagePage:
    messages = [msgspec.structs.replace(message_ext(), store_timestamp_ms=at) for at in times]
    return MessagePage([FoundMessage("b", each) for each in messages], is_whole)


def test_a_page_goes_on_past_what_was_seen_of_its_last_time() -> None:
    assert next_cursor(page(1, 2, 2), 0, 0) == "2.2"
    assert next_cursor(page(2, 2), 2, 5) == "2.7"
    assert next_cursor(page(2, 3), 2, 5) == "3.1"
    assert next_cursor(page(), 2, 5) == "2.5"
    assert next_cursor(page(1, is_whole=True), 0, 0) is None


def test_a_cursor_is_read_back() -> None:
    assert cursor_of(Parameters({"cursor": "17.3"})) == (17, 3)
    assert cursor_of(Parameters({})) is None


@pytest.mark.parametrize("text", ["x", "1", "1.", ".1", "1.2.3", "-1.0", "1.-1", "1.10001"])
def test_a_cursor_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(APIError):
        cursor_of(Parameters({"cursor": text}))
