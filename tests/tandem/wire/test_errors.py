import pytest

from tandem.wire.errors import (
    FrameTooLargeError,
    MalformedFrameError,
    MalformedMessageError,
    WireError,
)


def test_all_are_the_peers_fault() -> None:
    for error in (FrameTooLargeError, MalformedFrameError, MalformedMessageError):
        assert issubclass(error, WireError)


def test_facts_are_attributes_and_in_the_text() -> None:
    with pytest.raises(FrameTooLargeError, match="frame of 20 bytes; the limit is 10") as large:
        raise FrameTooLargeError("frame", 20, 10)
    assert (large.value.part, large.value.size, large.value.limit) == ("frame", 20, 10)
    error = MalformedFrameError("no topic", code=10, field="topic")
    assert (error.code, error.field) == (10, "topic")
