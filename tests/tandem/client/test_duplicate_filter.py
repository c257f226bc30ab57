import pytest

from tandem.client.duplicate_filter import DuplicateFilter
from tandem.wire.errors import ArgumentError
from tandem.wire.message import MessageExt
from tests.tandem.client.fake_broker import message_ext


def keyed(key: str, *, queue_id: int = 0, topic: str = "orders") -> MessageExt:
    return message_ext(topic=topic, queue_id=queue_id, properties={"UNIQ_KEY": key})


def test_the_second_copy_is_told_also_from_another_queue() -> None:
    seen = DuplicateFilter()
    assert not seen.is_duplicate(keyed("a"))
    assert not seen.is_duplicate(keyed("b"))
    assert seen.is_duplicate(keyed("a", queue_id=1))
    assert seen.is_duplicate(keyed("a"))


def test_topics_have_keys_of_their_own() -> None:
    seen = DuplicateFilter()
    assert not seen.is_duplicate(keyed("a"))
    assert not seen.is_duplicate(keyed("a", topic="other"))


def test_messages_without_a_key_are_never_duplicates() -> None:
    seen = DuplicateFilter()
    assert not any(seen.is_duplicate(message_ext()) for _ in range(3))


def test_the_oldest_keys_are_forgotten() -> None:
    seen = DuplicateFilter(keys_max=2)
    assert not any(seen.is_duplicate(keyed(key)) for key in "abc")
    assert seen.is_duplicate(keyed("c"))
    assert not seen.is_duplicate(keyed("a"))


def test_a_filter_that_remembers_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        DuplicateFilter(keys_max=0)
    assert caught.value.names == ("keys_max",)
