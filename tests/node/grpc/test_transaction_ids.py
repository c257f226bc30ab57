from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.grpc.transaction_ids import TransactionId, read_transaction_id
from tandem.wire.untrusted import UnreadableError

OFFSETS = st.integers(0, 2**63 - 1)


@given(st.from_regex(r"[a-z-]{1,20}", fullmatch=True), OFFSETS, OFFSETS, st.text(max_size=40))
def test_ids_are_read_as_they_were_written(
    broker: str, queue_offset: int, physical_offset: int, message_id: str
) -> None:
    given_out = TransactionId(broker, queue_offset, physical_offset, message_id)
    assert read_transaction_id(str(given_out)) == given_out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "half1 a 1 2",
        "half2 a 1 2 m",
        "half1 a -1 2 m",
        "half1 a 1 9223372036854775808 m",
    ],
)
def test_others_are_one_error(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_transaction_id(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_one_error(text: str) -> None:
    with suppress(UnreadableError):
        read_transaction_id(text)
