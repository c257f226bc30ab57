import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.client.identity import ClientIdentity, UniqueKeys
from tandem.life.made_id import MadeKey, OffsetId, made_key_of, offset_id_of
from tandem.wire.message import Host, offset_msg_id

NOW_MS = 1_795_836_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize("ip", ["10.1.2.3", "2001:db8::7"])
@pytest.mark.parametrize("age_ms", [0, 1, DAY_MS, 26 * DAY_MS])
def test_a_unique_key_says_who_made_it_and_when(ip: str, age_ms: int) -> None:
    key = UniqueKeys(ClientIdentity(ip, 4_711, 7)).next_key(NOW_MS - age_ms)
    made = made_key_of(key, NOW_MS)
    assert made is not None
    assert (made.address, made.process_id, made.made_ms) == (ip, 4_711, NOW_MS - age_ms)
    assert offset_id_of(key) is None


def test_a_key_of_the_last_month_is_not_from_the_future() -> None:
    start = NOW_MS - 27 * DAY_MS  # the first of the month
    key = UniqueKeys(ClientIdentity("10.1.2.3", 1, 7)).next_key(start - 2 * DAY_MS)
    made = made_key_of(key, start)
    assert made is not None
    assert made.made_ms == start - 2 * DAY_MS


@pytest.mark.parametrize("host", [Host("10.1.2.3", 10_911), Host("2001:db8::7", 65_535)])
def test_an_offset_id_says_where_a_message_is(host: Host) -> None:
    text = offset_msg_id(host, 123_456_789)
    assert offset_id_of(text) == OffsetId(str(host), 123_456_789)
    assert offset_id_of(text.lower()) == OffsetId(str(host), 123_456_789)
    assert made_key_of(text, NOW_MS) is None


@pytest.mark.parametrize(
    "text", ["", "k1", "7F", "7F00" * 8 + "0", "Z" * 32, "order 17", "\uff17" * 32, "\ud800" * 32]
)
def test_another_text_is_neither(text: str) -> None:
    assert offset_id_of(text) is None
    assert made_key_of(text, NOW_MS) is None


@given(st.binary(min_size=16, max_size=16) | st.binary(min_size=28, max_size=28))
def test_any_digits_are_one_of_both_or_none(data: bytes) -> None:
    text = data.hex().upper()
    place, made = offset_id_of(text), made_key_of(text, NOW_MS)
    assert place is None or made is None
    assert made is None or isinstance(made, MadeKey)
