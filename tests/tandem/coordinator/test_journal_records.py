"""What is made of whole journals and of damaged ones is in `test_journal.py`."""

import time

from hypothesis import given
from hypothesis import strategies as st

from tandem.coordinator import journal_records
from tandem.coordinator.journal_records import split, twice

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)


@given(PAYLOADS, st.integers(0, 50))
def test_records_come_back_and_nothing_is_found_wrong(payloads: list[bytes], room: int) -> None:
    content = b"".join(map(twice, payloads))
    assert split(content + bytes(room)) == (payloads, len(content), False, [])


@given(PAYLOADS, st.data())
def test_a_changed_byte_is_named_and_takes_nothing(
    payloads: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(b"".join(map(twice, payloads)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    found = split(bytes(content))
    assert (found.payloads, found.is_damaged) == (payloads, False)
    # A copy whose last bytes became zeros cannot be told from one that was never written whole.
    if any(content[at:]):
        ((start, end),) = found.changed
        assert start <= at < end


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_apart(content: bytes) -> None:
    found = split(content)
    assert 0 <= found.end <= len(content)
    assert all(0 <= start < end <= len(content) for start, end in found.changed)


def test_what_looks_like_many_long_records_costs_no_more_than_a_search_may() -> None:
    content = bytearray(twice(b"first"))
    content += b"\xff" + b"\x00\x10\x00\x00\x01\x02\x03\x04" * (1 << 17) + bytes(1 << 20)
    started = time.process_time()
    found = split(bytes(content))
    assert time.process_time() - started < 10
    assert found.payloads == [b"first"]
    assert found.is_damaged
    assert journal_records.SEARCHED_BYTES_MAX >= 64 * (1 << 20)
