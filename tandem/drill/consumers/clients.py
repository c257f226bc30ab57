"""Topics, producers and members of groups for the consumers' load, on a cluster that runs."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Protocol

from tandem.client import Admin, Consumer, Producer, PullConsumer
from tandem.client.cluster_access import ClusterAccess
from tandem.drill.consumers.load import ConsumerLoad, Rates
from tandem.drill.consumers.names import Topics, groups_of, letters_group
from tandem.drill.consumers.promises import GroupRules

COMMIT_INTERVAL_MS: Final = 1_000
"""Often, so that there is something to see."""

Task = Callable[[], Awaitable[None]]


class CreatesTopics(Protocol):
    """What is needed of tandem.Admin."""

    async def create_topic(self, topic: str, *, queue_nums: int, broker_name: str) -> object:
        """Create a topic at one broker; raises ClientError."""
        ...


async def create_topics(admin: CreatesTopics, broker_name: str, topics: Topics) -> None:
    """Create the topics of the load at one broker; raises ClientError."""
    for topic, queue_nums in topics.queue_counts.items():
        await admin.create_topic(topic, queue_nums=queue_nums, broker_name=broker_name)


async def consumer_tasks(
    stack: AsyncExitStack,
    access: ClusterAccess,
    load: ConsumerLoad,
    *,
    attempt_ms: int,
    has_timers: bool,
    rates: Rates = Rates(),  # noqa: B008 - frozen
) -> list[Task]:
    """Open every client of the load, which the stack closes; return the work of each."""
    producer = await stack.enter_async_context(
        Producer(
            access,
            # A broker may ask any producer of the group about a transaction.
            group=f"tandem-drill-effects{load.topics.suffix}",
            # The drill sends again by itself, so that it can count the attempts.
            retry_times_when_send_failed=0,
            resend_until_ok=False,
            send_msg_timeout_ms=attempt_ms,
            transaction_check=load.answer,
        )
    )
    tasks: list[Task] = [
        partial(load.send_plain, producer, rates.plain),
        partial(load.send_delayed, producer, rates.delayed),
        partial(load.send_retried, producer, rates.retried),
        partial(load.send_transactions, producer, rates.transaction),
    ]
    if has_timers:
        tasks.append(partial(load.send_timed, producer, rates.timed))
    groups = groups_of(load.topics)
    for group in groups:
        tasks += await _members(stack, access, load, group)
    letters = await stack.enter_async_context(
        PullConsumer(access, group=letters_group(load.topics))
    )
    tasks += [
        partial(load.watch_dead_letters, group, letters)
        for group in groups
        if group.reconsume_max is not None
    ]
    admin = await stack.enter_async_context(Admin(access))
    tasks.append(partial(load.watch_offsets, admin, groups))
    return tasks


async def _members(
    stack: AsyncExitStack, access: ClusterAccess, load: ConsumerLoad, group: GroupRules
) -> list[Task]:
    tasks: list[Task] = []
    for number in range(1, group.members + 1):
        member = f"{group.name}-{number}"
        consumer = await stack.enter_async_context(
            Consumer(
                access,
                group=group.name,
                orderly=group.is_orderly,
                max_reconsume_times=group.reconsume_max,
                commit_interval_ms=COMMIT_INTERVAL_MS,
            )
        )
        tasks += [partial(load.read, group, member, consumer, topic) for topic in group.topics]
    return tasks
