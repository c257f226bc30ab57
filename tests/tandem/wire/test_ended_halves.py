import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.ended_halves import ended_halves
from tandem.wire.message import MessageExt
from tests.tandem.client.fake_broker import message_ext


def an_op(body: bytes, tags: str = "d") -> MessageExt:
    return message_ext(body=body, properties={"TAGS": tags})


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"12,15,", [12, 15]), (b"7", [7]), (b"", []), (b"x,3,-1,9999999999999999999999,4", [3, 4])],
)
def test_op_messages_of_all_versions_are_read(body: bytes, expected: list[int]) -> None:
    assert ended_halves(an_op(body)) == expected
    assert ended_halves(an_op(body, tags="x")) == []


@given(st.binary())
def test_any_body_is_a_list_of_offsets(body: bytes) -> None:
    assert all(offset >= 0 for offset in ended_halves(an_op(body)))
