"""A directory goes from a node of ours to a broker of RocketMQ 5.5.0, and back.

Each reads every message that is there, finds the groups where they were, and delivers once what
waited for its time; then it gets more. Stores alone go to and fro in test_rocketmq_store.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest

import tandem
from tandem.client import BlockingAdmin
from tandem.testing import running_cluster
from tests.compat.programs import NotToBeHadError
from tests.compat.real_broker import broker, name_server, own_address
from tests.compat.suites import FIVE_FIVE
from tests.support.patience import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]

QUEUES: Final = 2
COUNT: Final = 40
LATER_MS: Final = 45_000
LATER_LEVEL: Final = 4
"""30 s."""
OURS: Final[dict[str, Any]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 16_777_216,
        "mapped_file_size_consume_queue_bytes": 600_000,
        "max_hash_slot_num": 500_000,
        "max_index_num": 2_000_000,
        "timer_wheel_enable": True,
    }
}
THEIRS: Final = {
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "600000",
    "mappedFileSizeTimerLog": "104857600",
    # Else 5.5 knows a recall by the message's key alone, and not by topic and key as 5.3.3.
    "appendTopicForTimerDeleteKey": "true",
}

Seen = dict[str, list[tuple[object, ...]]]


def fill(servers: str, who: str) -> None:
    """Send messages of many kinds, recall one, and move a group on."""
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
        producer.send(tandem.Message("Plain", f"{who} large".encode() * 9_000))
        producer.send(
            tandem.Message("Later", f"{who} level".encode(), delay_time_level=LATER_LEVEL)
        )
        due_ms = int(time.time() * 1000) + LATER_MS  # noqa: TID251 - of another process's clock
        for body in ("timed", "recalled"):
            message = tandem.Message("Later", f"{who} {body}".encode(), deliver_time_ms=due_ms)
            sent = producer.send(message)
        recall = {"TIMER_DEL_UNIQKEY": f"Later+{sent.msg_id}"}
        message = tandem.Message("Later", b"recall", deliver_time_ms=due_ms, properties=recall)
        assert producer.send(message).status is tandem.SendStatus.SEND_OK
    with tandem.BlockingPullConsumer(servers, "readers") as consumer:
        for queue in consumer.fetch_message_queues("Plain"):
            consumer.update_consume_offset(queue, consumer.max_offset(queue) - 3)


def look(servers: str) -> Seen:
    """Read all messages by queue and by key, and where the group is."""
    found: Seen = {}
    with tandem.BlockingPullConsumer(servers, "readers") as consumer:
        for queue in consumer.fetch_message_queues("Plain"):
            found[f"queue {queue.queue_id}"] = [
                (
                    *(m.queue_offset, m.physical_offset, m.body, m.keys, m.tags, m.sys_flag),
                    *(m.born_timestamp_ms, m.store_timestamp_ms, str(m.born_host)),
                    tuple(sorted(m.properties.items())),
                )
                for m in _messages(consumer, queue)
            ]
            found[f"group {queue.queue_id}"] = [(consumer.fetch_consume_offset(queue),)]
    with BlockingAdmin(servers) as admin:
        bodies = [row[2] for name, rows in found.items() if "queue" in name for row in rows]
        plain = [body.decode().split() for body in bodies if isinstance(body, bytes)]
        for who in {words[0] for words in plain if len(words) == 2}:
            for number in range(COUNT):
                by_key = admin.messages_by_key("Plain", f"{who}{number}")
                found[f"key {who}{number}"] = [(m.body, m.physical_offset) for m in by_key]
                assert [m.body for m in by_key] == [f"{who} {number}".encode()]
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


def test_a_directory_goes_to_a_broker_of_5_5_and_back(tmp_path: Path) -> None:
    try:
        jars = FIVE_FIVE.jars
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ 5.5.0 cannot be fetched: {error}")
    home = tmp_path / "ours"
    home.mkdir()
    with running_cluster(home, slaves_count=0, settings=OURS) as cluster:
        servers = ";".join(cluster.name_servers)
        with BlockingAdmin(servers) as admin:
            for topic in ("Plain", "Later"):
                admin.create_topic(topic, queue_nums=QUEUES)
        fill(servers, "ours")
        left, store = look(servers), cluster.store_directory(cluster.nodes[0])
    address = own_address()
    place = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    with (
        name_server(jars, tmp_path / "names", address),
        broker(jars, tmp_path / "theirs", address, f"{address}:9876", **THEIRS, **place) as newest,
    ):
        servers = f"{address}:9876"
        with BlockingAdmin(servers) as admin:
            wait_until(lambda: {"Plain", "Later"} <= set(admin.topics()))
        assert look(servers) == left
        wait_for_delayed(servers, "ours")
        assert delivered(servers) == all_of("ours")
        fill(servers, "theirs")
        left = look(servers)
        newest.stop()
    with running_cluster(home, slaves_count=0, settings=OURS) as cluster:
        servers = ";".join(cluster.name_servers)
        assert look(servers) == left
        wait_for_delayed(servers, "theirs")
        assert delivered(servers) == [*all_of("ours"), *all_of("theirs")]
