from node.simulated.disk import SimulatedDisk
from store import MessageStore, PutMessage
from store.messages.queue_growth import Growth, QueueGrowth
from tests.node.doubles import NOW_MS, open_store

BORN_HOST = b"\x0a\1\2\3\0\0\4\xd2"


def put(store: MessageStore, topic: str, queue_id: int, body: bytes) -> int:
    """Put a message; return the size of its record."""
    result = store.puts.put_message(PutMessage(topic, queue_id, body, b"", NOW_MS, BORN_HOST))
    assert result.status == 0
    return result.wrote_bytes


def seen(growth: QueueGrowth) -> list[Growth]:
    return [each for each in growth.look() if each is not None]


def opened(*, is_fenced: bool = False) -> MessageStore:
    store = open_store(SimulatedDisk(), is_slave=is_fenced, is_fenced=is_fenced)
    if is_fenced:
        store.become_master()
    return store


def counting(store: MessageStore) -> QueueGrowth:
    return QueueGrowth(store.queues, store.reads.max_offset_in_queue)


def test_what_was_there_does_not_count_and_what_comes_counts_once() -> None:
    store = opened()
    put(store, "T", 0, b"before")
    growth = counting(store)
    assert seen(growth) == []
    first, second = put(store, "T", 0, b"a"), put(store, "T", 0, b"bbbb")
    assert seen(growth) == [Growth("T", 2, first + second)]
    assert seen(growth) == []


def test_each_queue_and_each_new_one_counts_by_itself() -> None:
    store = opened()
    growth = counting(store)
    sizes = [
        put(store, topic, queue_id, b"x") for topic, queue_id in (("A", 0), ("A", 3), ("B", 0))
    ]
    assert seen(growth) == [
        Growth(topic, 1, size) for topic, size in zip("AAB", sizes, strict=True)
    ]


def test_a_run_over_several_files_of_a_queue_counts_whole() -> None:
    store = opened()  # 300 units to a file
    growth = counting(store)
    sizes = [put(store, "T", 0, b"x" * (number % 7)) for number in range(700)]
    assert seen(growth) == [Growth("T", 700, sum(sizes))]


def test_what_is_not_confirmed_does_not_count_yet() -> None:
    store = opened(is_fenced=True)
    growth = counting(store)
    size = put(store, "T", 0, b"a")
    end = store.max_physical_offset
    put(store, "T", 0, b"b")
    assert seen(growth) == []
    store.confirm(end)
    assert seen(growth) == [Growth("T", 1, size)]


def test_a_queue_that_was_deleted_and_made_anew_counts_from_its_beginning() -> None:
    store = opened()
    growth = counting(store)
    put(store, "T", 0, b"a")
    put(store, "T", 0, b"b")
    assert len(seen(growth)) == 1
    store.queues.delete_topic("T")
    assert seen(growth) == []
    size = put(store, "T", 0, b"c")
    assert seen(growth) == [Growth("T", 1, size)]
