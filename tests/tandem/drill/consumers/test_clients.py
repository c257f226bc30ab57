"""Who takes part in the consumers' load. Real nodes: tests/faults/test_drill*.py."""

from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio
import trio.testing

from tandem.client.cluster_access import ClusterAccess
from tandem.drill.consumers.clients import consumer_tasks, create_topics
from tandem.drill.consumers.load import ConsumerLoad
from tandem.drill.consumers.names import GROUPS, Topics
from tandem.drill.consumers.promises import Promises
from tandem.drill.ledger import Ledger

NOBODY = ClusterAccess(["127.0.0.1:1"])


class CreatesTopics:
    """Notes what is created."""

    def __init__(self) -> None:
        self.created: list[tuple[str, int, str]] = []

    async def create_topic(self, topic: str, *, queue_nums: int, broker_name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append((topic, queue_nums, broker_name))


async def test_every_topic_is_created_at_the_broker() -> None:
    admin, topics = CreatesTopics(), Topics("-of-this-drill")

    await create_topics(admin, "broker-b", topics)

    assert admin.created == [
        (topic, count, "broker-b") for topic, count in topics.queue_counts.items()
    ]


async def test_each_kind_of_message_and_each_member_is_a_task(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with Ledger(tmp_path / "consumers.ndjson") as ledger:
        load = ConsumerLoad(
            ledger=ledger,
            promises=Promises(GROUPS),
            wall_ms=lambda: 0.0,
            broker_of=lambda _: "b",
        )
        for has_timers in (True, False):
            async with AsyncExitStack() as stack:
                tasks = await consumer_tasks(
                    stack,
                    NOBODY,
                    load,
                    attempt_ms=1_000,
                    has_timers=has_timers,
                )
                names = Counter(_name(task) for task in tasks)
                assert names["send_timed"] == has_timers
                assert names["watch_offsets"] == 1
                assert names["watch_dead_letters"] == 1
                assert names["read"] == sum(len(group.topics) * group.members for group in GROUPS)


def _name(task: object) -> str:
    assert isinstance(task, partial)
    name: str = task.func.__name__
    return name
