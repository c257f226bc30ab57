"""What is put into the directory of a broker, and all that can be read of it again."""

import time
from typing import Any, Final

import tandem
from tandem.client import BlockingAdmin
from tests.support.patience import wait_until

QUEUES: Final = 2
COUNT: Final = 40
LATER_MS: Final = 45_000
LATER_LEVEL: Final = 4
"""30 s."""
TOPICS: Final = ("Plain", "Later")
OURS: Final[dict[str, Any]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 16_777_216,
        "mapped_file_size_consume_queue_bytes": 600_000,
        "max_hash_slot_num": 500_000,
        "max_index_num": 2_000_000,
        "timer_wheel_enable": True,
    }
}

Seen = dict[str, list[Any]]


def fill(servers: str, who: str, *, recall_by_topic: bool = True) -> None:
    """Send messages of many kinds, recall one, and move a group on.

    5.3.3 knows a recall by topic and key, 5.5 by the key alone where it is not set up otherwise.
    """
    with tandem.BlockingProducer(servers, "filling") as producer:
        for number in range(COUNT):
            message = tandem.Message(
                "Plain",
                f"{who} {number}".encode(),
                keys=[f"{who}{number}", "all"],
                tags="odd" if number % 2 else "even",
                properties={"name": "中 \U0001f600"},
            )
            assert producer.send(message).status is tandem.SendStatus.SEND_OK
        producer.send_batch(
            [tandem.Message("Plain", f"{who} batch {n}".encode()) for n in range(5)]
        )
        producer.send(tandem.Message("Plain", f"{who} large".encode() * 5_000))
        producer.send(
            tandem.Message("Later", f"{who} level".encode(), delay_time_level=LATER_LEVEL)
        )
        due_ms = int(time.time() * 1000) + LATER_MS  # noqa: TID251 - of another process's clock
        timed, recalled = (
            tandem.Message("Later", f"{who} {body}".encode(), deliver_time_ms=due_ms)
            for body in ("timed", "recalled")
        )
        producer.send(timed)
        key = producer.send(recalled).msg_id
        key = f"Later+{key}" if recall_by_topic else key
        recall = {"TIMER_DEL_UNIQKEY": key}
        message = tandem.Message("Later", b"recall", deliver_time_ms=due_ms, properties=recall)
        assert producer.send(message).status is tandem.SendStatus.SEND_OK
    with tandem.BlockingPullConsumer(servers, "readers") as consumer:
        for queue in consumer.fetch_message_queues("Plain"):
            consumer.pull(queue, 0)  # makes the group, which 5.5 wants before it takes offsets
            consumer.update_consume_offset(queue, consumer.max_offset(queue) - 3)


def look(servers: str) -> Seen:
    """Read all messages by queue and by key, and where the group is."""
    found: Seen = {}
    with tandem.BlockingPullConsumer(servers, "readers") as consumer:
        for queue in consumer.fetch_message_queues("Plain"):
            found[f"queue {queue.queue_id}"] = [
                [
                    *(m.queue_offset, m.physical_offset, m.body.hex(), m.sys_flag, m.properties),
                    *(m.born_timestamp_ms, m.store_timestamp_ms, str(m.born_host)),
                ]
                for m in _messages(consumer, queue)
            ]
            found[f"group {queue.queue_id}"] = [consumer.fetch_consume_offset(queue)]
    bodies = [
        bytes.fromhex(row[2]).decode().split()
        for rows in found.values()
        for row in rows
        if isinstance(row, list)
    ]
    with BlockingAdmin(servers) as admin:
        for who in {words[0] for words in bodies if len(words) == 2}:
            for number in range(COUNT):
                by_key = admin.messages_by_key("Plain", f"{who}{number}")
                assert [m.body for m in by_key] == [f"{who} {number}".encode()]
                found[f"key {who}{number}"] = [m.physical_offset for m in by_key]
    return found


def _messages(
    consumer: tandem.BlockingPullConsumer, queue: tandem.MessageQueue
) -> list[tandem.MessageExt]:
    found: list[tandem.MessageExt] = []
    offset = consumer.min_offset(queue)
    while offset < consumer.max_offset(queue):
        result = consumer.pull(queue, offset)
        found += result.messages
        offset = result.next_begin_offset
    return found


def delivered(servers: str) -> list[str]:
    """What has come whose time has come."""
    with tandem.BlockingPullConsumer(servers, "later") as consumer:
        queues = consumer.fetch_message_queues("Later")
        return sorted(m.body.decode() for queue in queues for m in _messages(consumer, queue))


def wait_for_delayed(servers: str, who: str) -> None:
    """Wait for what came late, and for another one that is due after all that."""
    with tandem.BlockingProducer(servers, "filling") as producer:
        producer.send(tandem.Message("Later", f"{who} last".encode(), delay_ms=LATER_MS + 5_000))
    wait_until(lambda: f"{who} last" in delivered(servers))


def all_of(who: str) -> list[str]:
    return [f"{who} {body}" for body in ("last", "level", "timed")]
