"""Records of the log enter their queues: many at once has the effect of one after the other."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.log.log_end import DispatchRequest, intact_records, read_record
from store.machine.errors import StoreFullError
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.queue_units import QueueGapError
from store.results import Arrival
from store.services.dispatch import ConsumeQueueDispatcher, is_directory_name
from store.services.usual_records import usual_records
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.message_properties import tags_code
from tests.store.store_world import files_of
from tests.support.log_builder import LogBuilder
from tests.support.logged import logged

UNIT = 20
FILE_BYTES = 10 * UNIT


def some_queues(disk: SimulatedDisk | None = None) -> ConsumeQueueStore:
    return ConsumeQueueStore("/store/consumequeue", FILE_BYTES, disk or SimulatedDisk())


def requests_of(log: LogBuilder, levels: DelayLevels | None = None) -> list[DispatchRequest]:
    found = []
    for message in log.messages:
        at = message.physical_offset
        request = read_record(log.log, at, len(log.log), at, levels=levels or DelayLevels())
        assert isinstance(request, DispatchRequest)
        found.append(request)
    return found


def enter_all(dispatcher: ConsumeQueueDispatcher, log: LogBuilder, **settings: bool) -> None:
    data = bytes(log.log)
    columns = intact_records(data, 0)
    assert len(columns) == len(log.messages)
    dispatcher.dispatch_columns(data, columns, **settings)  # type: ignore[arg-type]


def dispatch_usual_first(
    dispatcher: ConsumeQueueDispatcher,
    log: LogBuilder,
    levels: DelayLevels,
    arrivals: list[Arrival] | None = None,
) -> int:
    """Enter usual records in a loop, each other one alone; return how many were not usual."""
    data = bytes(log.log)
    at = others = 0
    while at < len(data):
        found = usual_records(data, at, len(data), at)
        _, last = dispatcher.dispatch_usual(found, 0, arrivals=arrivals)
        if last is not None:
            at = last[0] + last[1]
            continue
        request = read_record(data, at, len(data), at, levels=levels)
        assert isinstance(request, DispatchRequest)
        dispatcher.dispatch(request, arrivals=arrivals)
        others += 1
        at += request.size
    return others


def a_log(count: int = 30) -> LogBuilder:
    log = LogBuilder(file_bytes=1 << 20)
    for number in range(count):
        topic, queue_id = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))[number % 3]
        log.put(topic, b"%d" % number, queue_id=queue_id, tags=("", "TagA", "TagB")[number % 3])
    return log


def test_each_queue_gets_its_own_records_in_their_order() -> None:
    """CommitLogDispatcherBuildConsumeQueue."""
    log = a_log()
    queues = some_queues()
    enter_all(ConsumeQueueDispatcher(queues), log)
    assert queues.queues() == [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]
    for message in log.messages:
        queue = queues.find(message.topic, message.queue_id)
        assert queue is not None
        assert queue.unit(message.queue_offset) == (
            message.physical_offset,
            message.store_size,
            tags_code(message.tags),
        )


topics = st.sampled_from(["TopicA", "TopicB", "SCHEDULE_TOPIC_XXXX", "", "..", "a/b", "t" * 130])
kinds = st.sampled_from(
    [0, TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE]
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "TAGS": st.sampled_from(["TagA", "TagB", "标签"]),
        "DELAY": st.sampled_from(["0", "1", "18", "19", "-3", "x", "9" * 30]),
    },
)


@settings(deadline=None)
@given(st.lists(st.tuples(topics, st.integers(-1, 2), kinds, properties), max_size=40))
def test_columns_and_one_after_the_other_have_the_same_effect(
    messages: list[tuple[str, int, int, dict[str, str]]],
) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    ends: dict[tuple[str, int], int] = {}
    for topic, queue_id, kind, some_properties in messages:
        is_out = kind in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)
        end = ends.setdefault((topic, queue_id), 0)
        log.put(
            topic,
            queue_id=queue_id,
            sys_flag=kind,
            # The older transaction scheme numbered prepared messages on their own.
            queue_offset=77 if is_out else end,
            properties=some_properties,
        )
        ends[topic, queue_id] += not is_out
    told: list[list[tuple[int, str, int, int, int | None]]] = [[], [], []]
    disks = SimulatedDisk(), SimulatedDisk(), SimulatedDisk()
    levels = DelayLevels("1s 2m")
    one_by_one = ConsumeQueueDispatcher(some_queues(disks[0]), levels)
    for request in requests_of(log, levels):
        one_by_one.dispatch(request, arrivals=told[0])
    at_once = ConsumeQueueDispatcher(some_queues(disks[1]), levels)
    data = bytes(log.log)
    at_once.dispatch_columns(data, intact_records(data, 0), arrivals=told[1])
    in_a_loop = ConsumeQueueDispatcher(some_queues(disks[2]), levels)
    dispatch_usual_first(in_a_loop, log, levels, told[2])
    assert files_of(disks[0]) == files_of(disks[1]) == files_of(disks[2])
    last = {facts[1:3]: facts[3] for facts in told[0]}
    assert {facts[1:3]: facts[3] for facts in told[1]} == last
    assert {facts[1:3]: facts[3] for facts in told[2]} == last
    assert len(told[1]) == len(last)


def test_an_arrival_is_told_once_a_queue_with_the_tags_if_they_are_all_the_same() -> None:
    log = LogBuilder()
    for topic, tags in (("A", "x"), ("B", "x"), ("A", "x"), ("B", "y"), ("C", ""), ("C", "")):
        log.put(topic, tags=tags)
    told: list[tuple[int, str, int, int, int | None]] = []
    dispatcher = ConsumeQueueDispatcher(some_queues())
    for _ in range(2):  # the second time nothing is new
        data = bytes(log.log)
        dispatcher.dispatch_columns(data, intact_records(data, 0), arrivals=told)
    assert [facts[1:] for facts in told] == [
        ("A", 0, 2, tags_code("x")),
        ("B", 0, 2, None),
        ("C", 0, 2, 0),
    ]


def test_prepared_and_rolled_back_messages_are_in_no_queue_whatever_number_they_have() -> None:
    """Also those of the older scheme, which counted prepared messages in a table of their own."""
    log = LogBuilder()
    log.put(body=b"0")
    log.put(sys_flag=TRANSACTION_PREPARED_TYPE, queue_offset=41)
    log.put(sys_flag=TRANSACTION_ROLLBACK_TYPE, queue_offset=41)
    log.put(sys_flag=TRANSACTION_PREPARED_TYPE, queue_offset=-9)
    committed = log.put(sys_flag=TRANSACTION_COMMIT_TYPE, queue_offset=1)
    queues = some_queues()
    enter_all(ConsumeQueueDispatcher(queues), log)
    queue = queues.find("TopicA", 0)
    assert queue is not None
    assert queue.next_offset == 2
    assert queue.unit(1)[0] == committed.physical_offset


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ""},
        {"topic": ".."},
        {"topic": "../../etc"},
        {"topic": "t" * 256},
        {"queue_id": -1},
        {"queue_offset": -1},
        {"queue_offset": 2**63 - 1},
    ],
)
def test_what_no_directory_or_file_can_be_named_after_enters_no_queue_and_is_told_once(
    fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    log = LogBuilder()
    for _ in range(3):
        log.put(**fields)  # type: ignore[arg-type] # of the right types
    for at_once in (True, False):
        caplog.clear()
        disk = SimulatedDisk()
        dispatcher = ConsumeQueueDispatcher(some_queues(disk))
        if at_once:
            enter_all(dispatcher, log)
        else:
            for request in requests_of(log):
                dispatcher.dispatch(request)
        assert files_of(disk) == {}
        assert len(logged(caplog, "store.services.dispatch")) == 1


def test_names_of_directories_are_told_from_others() -> None:
    assert all(map(is_directory_name, ["a", "%RETRY%g", "...", "标签", "t" * 255]))
    assert not any(map(is_directory_name, ["", ".", "..", "a/b", "/", "a\0", "t" * 256, "标" * 86]))


def test_topics_that_differ_only_in_bytes_that_are_no_text_are_one() -> None:
    log = LogBuilder()
    for _ in range(4):
        log.put("TopicXY")
    data = bytearray(log.log)
    for number, message in enumerate(log.messages):
        at = data.index(b"XY", message.physical_offset)
        data[at : at + 2] = b"Y\xff" if number % 2 else b"Y\xfe"
    queues = some_queues()
    ConsumeQueueDispatcher(queues).dispatch_columns(bytes(data), intact_records(bytes(data), 0))
    assert queues.queues() == [("TopicY\ufffd", 0)]
    queue = queues.find("TopicY\ufffd", 0)
    assert queue is not None
    assert queue.next_offset == 4


def test_a_gap_in_one_queue_is_told() -> None:
    log = a_log()
    log.put("TopicA", queue_offset=99)
    with pytest.raises(QueueGapError) as caught:
        enter_all(ConsumeQueueDispatcher(some_queues()), log)
    assert (caught.value.queue_offset, caught.value.next_offset) == (99, 10)
    late = LogBuilder()
    late.put(queue_offset=5)
    with pytest.raises(QueueGapError):
        enter_all(ConsumeQueueDispatcher(some_queues()), late, may_start_late=False)
    enter_all(ConsumeQueueDispatcher(some_queues()), late)


def a_topic_created_twice() -> LogBuilder:
    log = LogBuilder()
    for queue_offset in (0, 1, 2, 0, 1, 0, 1, 2, 3):
        log.put(queue_offset=queue_offset)
        log.put("TopicB")
    return log


@pytest.mark.parametrize("at_once", [True, False])
def test_a_queue_starts_anew_where_its_numbers_do(
    caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    """RocketMQ counts from 0 again in a topic that was deleted and created again.

    Read from the log, those messages were repeats to it, and are in no queue any more.
    """
    log = a_topic_created_twice()
    disk = SimulatedDisk()
    dispatcher = ConsumeQueueDispatcher(some_queues(disk))
    if at_once:
        enter_all(dispatcher, log)
    else:
        for request in requests_of(log):
            dispatcher.dispatch(request)
    expected = SimulatedDisk()
    last = LogBuilder()
    last.messages = [*log.messages[10::2], *log.messages[1::2]]
    last.log = log.log
    other = ConsumeQueueDispatcher(some_queues(expected))
    for request in requests_of(last):
        other.dispatch(request)
    assert files_of(disk) == files_of(expected)
    assert [line[:2] for line in logged(caplog, "store.services.dispatch")] == [("TopicA", 0)] * 2


def test_a_queue_goes_on_after_it_has_started_anew_and_repeats_are_repeats() -> None:
    log = a_topic_created_twice()
    queues = some_queues()
    queue = queues.find_or_create("TopicA", 0)
    for _ in range(2):
        enter_all(ConsumeQueueDispatcher(queues), log)
        assert queue.next_offset == 4
    log.put(queue_offset=4)
    enter_all(ConsumeQueueDispatcher(queues), log)
    assert queue.next_offset == 5


def batch_queues(disk: SimulatedDisk) -> ConsumeQueueStore:
    return ConsumeQueueStore(
        "/store/consumequeue",
        FILE_BYTES,
        disk,
        batch_directory="/store/batchconsumequeue",
        batch_mapped_file_size=4 * 46,
        is_batch_topic=lambda topic: topic == "Batches",
    )


def a_log_of_batches() -> LogBuilder:
    log = LogBuilder(file_bytes=1 << 20)
    base = 0
    for count in (3, 1, 32_767, 2, 5, 1, 1, 7):
        log.put("TopicA")
        log.put(
            "Batches",
            sys_flag=0xC0,
            tags="TagA",
            queue_offset=base,
            properties={"INNER_BASE": str(base), "INNER_NUM": str(count)},
        )
        base += count
    log.put("Batches", queue_offset=base)  # a message alone
    return log


def test_batches_enter_their_queues_with_the_numbers_of_their_messages() -> None:
    """BatchConsumeQueue.putMessagePositionInfoWrapper."""
    log = a_log_of_batches()
    disks = SimulatedDisk(), SimulatedDisk()
    queues = batch_queues(disks[0])
    told: list[tuple[int, str, int, int, int | None]] = []
    data = bytes(log.log)
    ConsumeQueueDispatcher(queues).dispatch_columns(data, intact_records(data, 0), arrivals=told)
    assert [facts[1:] for facts in told] == [("TopicA", 0, 8, 0), ("Batches", 0, 32_788, None)]
    queue = queues.find("Batches", 0)
    assert isinstance(queue, BatchConsumeQueue)
    units = [unit for n in (0, 32_773, 32_787) for unit in queue.batch_units(n, 10)]
    assert [(unit.base, unit.batch_size) for unit in units] == [
        (0, 3),
        (3, 1),
        (4, 32_767),
        (32_771, 2),
        (32_773, 5),
        (32_778, 1),
        (32_779, 1),
        (32_780, 7),
        (32_787, 1),
    ]
    one_by_one = ConsumeQueueDispatcher(batch_queues(disks[1]))
    for request in requests_of(log):
        one_by_one.dispatch(request)
    assert files_of(disks[0]) == files_of(disks[1])


def test_no_batch_is_skipped_wherever_the_queue_has_stopped() -> None:
    """RocketMQ compares starts with ends of records there; a queue takes each record once."""
    log = a_log_of_batches()
    data = bytes(log.log)
    whole = SimulatedDisk()
    ConsumeQueueDispatcher(batch_queues(whole)).dispatch_columns(data, intact_records(data, 0))
    for message in log.messages:
        disk = whole.crashed()
        queues = batch_queues(disk)
        queues.load()
        queues.recover()
        queues.truncate_dirty(message.physical_offset)
        for queue in map(queues.find, *zip(*queues.queues(), strict=True)):
            assert queue is not None
            assert queue.max_physic_offset <= message.physical_offset
        ConsumeQueueDispatcher(queues).dispatch_columns(data, intact_records(data, 0))
        assert files_of(disk) == files_of(whole)


def test_extensions_get_the_times_of_their_records() -> None:
    """ConsumeQueueExt.put."""
    log = a_log(40)
    found = []
    for at_once in (True, False):
        disk = SimulatedDisk()
        queues = ConsumeQueueStore(
            "/store/consumequeue",
            FILE_BYTES,
            disk,
            ext_directory="/store/consumequeue_ext",
            ext_mapped_file_size=100,
        )
        dispatcher = ConsumeQueueDispatcher(queues)
        if at_once:
            enter_all(dispatcher, log)
        else:
            for request in requests_of(log):
                dispatcher.dispatch(request)
        found.append(files_of(disk))
    assert found[0] == found[1]
    first = found[0][f"/store/consumequeue_ext/TopicA/0/{0:020d}"]
    assert first[10:18] == log.messages[0].store_timestamp_ms.to_bytes(8, "big")


def test_without_room_what_fitted_is_told_and_the_rest_follows_later() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for _ in range(30):
        log.put()
    disk = SimulatedDisk(capacity_bytes=2 * FILE_BYTES + 5)
    queues = some_queues(disk)
    dispatcher = ConsumeQueueDispatcher(queues)
    told: list[tuple[int, str, int, int, int | None]] = []
    data = bytes(log.log)
    columns = intact_records(data, 0)
    with pytest.raises(StoreFullError):
        dispatcher.dispatch_columns(data, columns, arrivals=told)
    disk.capacity_bytes = 1 << 20
    dispatcher.dispatch_columns(data, columns, arrivals=told)
    assert [facts[1:] for facts in told] == [("TopicA", 0, 20, 0), ("TopicA", 0, 30, 0)]


def test_the_loop_takes_what_is_usual_and_nothing_else() -> None:
    log = a_log(300)
    queues = some_queues()
    dispatcher = ConsumeQueueDispatcher(queues)
    # The first record of each queue makes it.
    assert dispatch_usual_first(dispatcher, log, DelayLevels()) == 3
    data = bytes(log.log)
    # Nothing twice.
    assert dispatcher.dispatch_usual(usual_records(data, 0, len(data), 0), 0) == (0, None)
    queue = queues.find("TopicA", 0)
    assert queue is not None
    assert queue.next_offset == 100


@pytest.mark.parametrize(("since_ms", "taken"), [(1001, 0), (1000, 2), (0, 2)])
def test_the_loop_stops_where_time_goes_back_or_a_number_is_missing(
    since_ms: int, taken: int
) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for number, stamp in enumerate([1000, 1000, 1005, 1004, 1006]):
        log.put(queue_offset=number + (number == 4), store_timestamp_ms=stamp)
    dispatcher = ConsumeQueueDispatcher(some_queues())
    dispatcher.dispatch(requests_of(log)[0])
    data, second = bytes(log.log), log.messages[1].physical_offset
    found = usual_records(data, second, len(data), second)
    assert dispatcher.dispatch_usual(found, since_ms)[0] == taken
    if taken:
        fourth = log.messages[3].physical_offset
        found = usual_records(data, fourth, len(data), fourth)
        assert dispatcher.dispatch_usual(found, 0)[0] == 1


def test_the_loop_leaves_queues_with_extensions_alone() -> None:
    queues = ConsumeQueueStore(
        "/store/consumequeue",
        FILE_BYTES,
        SimulatedDisk(),
        ext_directory="/store/consumequeue_ext",
        ext_mapped_file_size=100,
    )
    assert dispatch_usual_first(ConsumeQueueDispatcher(queues), a_log(9), DelayLevels()) == 9


def test_the_loop_leaves_delayed_messages_and_topics_that_are_no_text_alone() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for topic in ("SCHEDULE_TOPIC_XXXX", "Topic\ufffd", "Topicabc"):
        for _ in range(3):
            log.put(topic, properties={"DELAY": "2"})
    log.log[:] = log.log.replace(b"Topicabc", b"Topic\xff\xff\xff")
    dispatcher = ConsumeQueueDispatcher(some_queues())
    # Of the second topic only the first message, which makes the queue.
    assert dispatch_usual_first(dispatcher, log, DelayLevels()) == 3 + 1 + 3


def test_without_room_the_loop_tells_what_fitted_and_the_rest_follows_later() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for _ in range(30):
        log.put()
    disk = SimulatedDisk(capacity_bytes=2 * FILE_BYTES + 5)
    queues = some_queues(disk)
    dispatcher = ConsumeQueueDispatcher(queues)
    dispatcher.dispatch(requests_of(log)[0])
    told: list[tuple[int, str, int, int, int | None]] = []
    data, second = bytes(log.log), log.messages[1].physical_offset
    with pytest.raises(StoreFullError):
        dispatcher.dispatch_usual(
            usual_records(data, second, len(data), second),
            0,
            arrivals=told,
        )
    assert [facts[1:] for facts in told] == [("TopicA", 0, 20, 0)]
    disk.capacity_bytes = 1 << 20
    enter_all(dispatcher, log)
    queue = queues.find("TopicA", 0)
    assert queue is not None
    assert queue.next_offset == 30


def test_no_records_enter_nothing() -> None:
    queues = some_queues()
    dispatcher = ConsumeQueueDispatcher(queues)
    dispatcher.dispatch_columns(b"", intact_records(b"", 0))
    request = requests_of(a_log(1))[0]
    dispatcher.dispatch(msgspec.structs.replace(request, sys_flag=TRANSACTION_PREPARED_TYPE))
    assert queues.queues() == []
