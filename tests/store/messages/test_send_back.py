"""Messages sent back, alone and all the way to the dead letters."""

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.schedule_message_service import ScheduleMessageService
from store.machine.table_file import TableFile
from store.messages.send_back import is_given_up, send_back
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import Host, MessageExt
from tandem.wire.message_properties import decode_properties
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    number_of,
    open_store,
    put,
    queue_messages,
)

A_RECORD = MessageExt(
    topic="TopicA",
    body=b"1:",
    properties={"KEYS": "k", "UNIQ_KEY": "U"},
    queue_id=1,
    queue_offset=5,
    physical_offset=4096,
    store_size=120,
    flag=7,
    sys_flag=9,
    born_timestamp_ms=1,
    born_host=Host("10.1.2.3", 1234),
    store_timestamp_ms=2,
    store_host=Host("127.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=0,
)
OFFSET_MSG_ID = "7F00000100002A9F0000000000001000"


def sent_back(
    record: MessageExt = A_RECORD, *, delay_level: int = 0, max_reconsume_times: int = 16
) -> tuple[str, int, dict[str, str], int]:
    message = send_back(
        record,
        group="g",
        delay_level=delay_level,
        max_reconsume_times=max_reconsume_times,
        retry_queue_id=2,
    )
    return (
        message.topic,
        message.queue_id,
        decode_properties(message.properties),
        message.reconsume_times,
    )


def test_a_message_sent_back_goes_to_the_retry_topic_with_a_growing_delay() -> None:
    """AbstractSendMessageProcessor.consumerSendMsgBack."""
    assert sent_back() == (
        "%RETRY%g",
        2,
        {
            "KEYS": "k",
            "UNIQ_KEY": "U",
            "RETRY_TOPIC": "TopicA",
            "WAIT": "false",
            "DELAY": "3",
            "ORIGIN_MESSAGE_ID": OFFSET_MSG_ID,
        },
        1,
    )
    again = msgspec.structs.replace(A_RECORD, reconsume_times=4)
    assert sent_back(again)[2]["DELAY"] == "7"


def test_the_rest_of_the_record_is_copied() -> None:
    message = send_back(
        A_RECORD, group="g", delay_level=1, max_reconsume_times=16, retry_queue_id=0
    )
    assert (message.body, message.flag, message.sys_flag) == (b"1:", 7, 9)
    assert (message.born_timestamp_ms, message.born_host) == (1, A_RECORD.born_host.packed)
    assert message.prepared_transaction_offset == 0


def test_a_level_of_the_consumers_own_is_taken() -> None:
    assert sent_back(delay_level=5)[2]["DELAY"] == "5"


def test_a_second_retry_still_names_the_first_topic_and_the_first_record() -> None:
    properties = A_RECORD.properties | {
        "RETRY_TOPIC": "First",
        "ORIGIN_MESSAGE_ID": "F00",
        "REAL_TOPIC": "%RETRY%g",
        "DELAY": "3",
    }
    retried = msgspec.structs.replace(A_RECORD, topic="%RETRY%g", properties=properties)
    found = sent_back(retried)[2]
    assert (found["RETRY_TOPIC"], found["ORIGIN_MESSAGE_ID"]) == ("First", "F00")


def test_an_origin_of_blanks_is_none() -> None:
    record = msgspec.structs.replace(A_RECORD, properties={"ORIGIN_MESSAGE_ID": " "})
    assert sent_back(record)[2]["ORIGIN_MESSAGE_ID"] == OFFSET_MSG_ID


@pytest.mark.parametrize(
    ("reconsume_times", "delay_level", "max_reconsume_times"),
    [(16, 0, 16), (17, 3, 16), (0, -1, 16), (0, 0, 0)],
)
def test_a_message_without_further_tries_goes_to_the_dead_letters(
    reconsume_times: int, delay_level: int, max_reconsume_times: int
) -> None:
    record = msgspec.structs.replace(A_RECORD, reconsume_times=reconsume_times)
    assert is_given_up(reconsume_times, delay_level, max_reconsume_times)
    topic, queue_id, properties, times = sent_back(
        record, delay_level=delay_level, max_reconsume_times=max_reconsume_times
    )
    assert (topic, queue_id, times) == ("%DLQ%g", 0, reconsume_times + 1)
    assert properties["DELAY"] == "0"


def test_the_last_try_but_one_is_not_given_up() -> None:
    assert not is_given_up(15, 0, 16)


def test_a_message_that_always_fails_ends_with_the_dead_letters_after_all_its_tries() -> None:
    disk, clock, levels = SimulatedDisk(), Clock(step_ms=0), DelayLevels()
    store = open_store(disk, clock=clock, commit_log_bytes=1 << 20)
    table = DelayOffsetTable(TableFile(disk, f"{DIRECTORY}/config/delayOffset.json"), clock)
    service = ScheduleMessageService(
        levels,
        table,
        find_queue=lambda queue_id: store.queues.find(SCHEDULE_TOPIC, queue_id),
        message=store.commit_log.message,
        put=lambda message: store.puts.put_message(message, hooks=False),
        flushed_where=lambda: store.flushed_where,
        wall_clock_ms=clock,
    )
    put(store, a_message(1))
    (record,) = queue_messages(store, "TopicA", 0)
    waited_ms = []
    while record.topic != "%DLQ%g":
        back = send_back(record, group="g", delay_level=0, max_reconsume_times=16, retry_queue_id=0)
        put(store, back)
        start_ms = clock.now_ms
        while (due_ms := service.deliver_due(clock.now_ms).next_ms) is not None:
            clock.now_ms = due_ms
        waited_ms.append(clock.now_ms - start_ms)
        record = queue_messages(store, back.topic, 0)[-1]
    assert waited_ms == [*levels.delays_ms[2:], 0]
    assert record.reconsume_times == 17
    assert record.properties["RETRY_TOPIC"] == "TopicA"
    assert record.properties["ORIGIN_MESSAGE_ID"] == "7F00000100002A9F0000000000000000"
    assert number_of(record) == 1
