import pytest

from node.errors import RequestError
from node.tables import reset_offsets
from node.tables.reset_offsets import ResetOffsets
from tandem.wire.response_code import ResponseCode


def test_a_consumer_is_told_once_for_each_queue() -> None:
    resets = ResetOffsets()
    assert resets.take("g", "T", 0) is None
    resets.put("g", "T", {0: 5, 1: 6})
    resets.put("g", "T", {1: 7})
    assert resets.is_pending("g", "T", 0)
    assert not resets.is_pending("h", "T", 0)
    assert not resets.is_pending("g", "T", 2)
    assert [resets.take("g", "T", queue) for queue in (2, 0, 0, 1)] == [None, 5, None, 7]
    assert not resets.is_pending("g", "T", 1)


def test_what_is_deleted_is_pending_no_more() -> None:
    resets = ResetOffsets()
    resets.put("g", "T", {0: 5})
    resets.put("g", "U", {0: 5})
    resets.forget("g", "T")
    resets.forget("g", "T")
    assert (resets.take("g", "T", 0), resets.take("g", "U", 0)) == (None, 5)


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset_offsets, "PENDING_MAX", 2)
    resets = ResetOffsets()
    resets.check_room()
    resets.put("g", "T", {0: 5, 1: 5})
    with pytest.raises(RequestError) as caught:
        resets.check_room()
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    resets.take("g", "T", 0)
    resets.check_room()


def test_nothing_is_pending_when_the_last_one_was_told() -> None:
    resets = ResetOffsets()
    resets.put("g", "T", {0: 5})
    assert resets.are_pending
    resets.take("g", "T", 0)
    assert not resets.are_pending
