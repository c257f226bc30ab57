import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
import typer

from tandem.cli.output import CommandError
from tandem.cli.topic_move import (
    QUIET_SECONDS,
    ROUTE_SECONDS,
    Place,
    _forget,
    _places,
    _redirect,
    check_groups,
    group_names,
    why_not_finished,
)
from tandem.client.admin_results import (
    GroupDescription,
    GroupQueue,
    TopicAtBroker,
    TopicDescription,
    TopicQueue,
)
from tandem.wire.route import BrokerData, ClusterInfo

NOW_MS = 1_800_000_000_000


def place(group: str, part: str, **changes: Any) -> Place:  # noqa: ANN401 - fields of a record
    facts: dict[str, Any] = {
        "perm": 4 if part == "old" else 6,
        "messages": 10,
        "unread": {},
        "last_stored_ms": NOW_MS - QUIET_SECONDS * 1000,
    }
    return Place(group=group, part=part, read_queues=1, write_queues=1, **(facts | changes))


def test_a_topic_that_was_read_leaves_its_old_group() -> None:
    assert (
        why_not_finished([place("a", "old"), place("b", "new")], NOW_MS, accept_unread=False) == ""
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"perm": 6}, {}),
        ({"unread": {"payments": 40}}, {}),
        ({"last_stored_ms": NOW_MS - 59_000}, {}),
        ({}, {"perm": 4}),
    ],
    ids=["takes messages", "not read", "not quiet", "new one takes none"],
)
def test_it_stays_while_anything_could_be_lost(old: dict[str, Any], new: dict[str, Any]) -> None:
    places = [place("a", "old", **old), place("b", "new", **new)]
    assert why_not_finished(places, NOW_MS, accept_unread=False)


def test_it_stays_where_there_is_no_new_group() -> None:
    assert why_not_finished([place("a", "old")], NOW_MS, accept_unread=True)


def test_what_nobody_will_read_can_be_given_up_and_nothing_else() -> None:
    unread = place("a", "old", unread={"gone": 1})
    assert not why_not_finished([unread, place("b", "new")], NOW_MS, accept_unread=True)
    writable = msgspec.structs.replace(unread, perm=6)
    assert why_not_finished([writable, place("b", "new")], NOW_MS, accept_unread=True)


def test_an_old_group_without_messages_need_not_be_quiet() -> None:
    empty = place("a", "old", messages=0, last_stored_ms=NOW_MS)
    assert not why_not_finished([empty, place("b", "new")], NOW_MS, accept_unread=False)


class FakeAdmin:
    """Two groups, a and b; what was changed there."""

    def __init__(self, *brokers: TopicAtBroker) -> None:
        self.brokers = list(brokers)
        self.done: list[tuple[str, str, object]] = []

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: BrokerData(broker_name=name, broker_addrs={}) for name in "ab"}, {}
        )

    async def create_topic(
        self, _topic: str, *, queue_nums: int, broker_name: str, attributes: Mapping[str, str]
    ) -> None:
        self.done.append(("create", broker_name, (queue_nums, dict(attributes))))

    async def alter_topic(
        self,
        _topic: str,
        *,
        broker_names: list[str],
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        (name,) = broker_names
        self.done.append(("alter", name, perm if perm is not None else attributes))

    async def describe_topic(self, topic: str) -> TopicDescription:
        queues = [TopicQueue(each.broker_name, 0, 5, 25, NOW_MS) for each in self.brokers]
        return TopicDescription(topic, self.brokers, queues, ["payments"])

    async def describe_group(self, group: str) -> GroupDescription:
        offsets = {"a": 20, "b": 25}
        queues = [
            GroupQueue(
                topic=topic,
                broker_name=name,
                queue_id=0,
                consumer_offset=offset,
                pull_offset=offset,
                broker_offset=25,
            )
            for topic in ("T", "Other")
            for name, offset in offsets.items()
        ]
        return GroupDescription(group=group, members=[], queues=queues)


def at(name: str, perm: int, **attributes: str) -> TopicAtBroker:
    return TopicAtBroker(
        broker_name=name,
        addresses={},
        read_queue_nums=3,
        write_queue_nums=2,
        perm=perm,
        attributes=attributes,
    )


async def redirected(admin: FakeAdmin, *wanted: str) -> list[tuple[str, str, object]]:
    await _redirect(admin, await admin.describe_topic("T"), wanted)  # type: ignore[arg-type]
    return admin.done


async def test_the_new_group_has_the_topic_before_the_old_one_takes_no_more() -> None:
    old = TopicAtBroker(
        broker_name="a",
        addresses={},
        read_queue_nums=3,
        write_queue_nums=2,
        perm=6,
        attributes={"cleanup.policy": "COMPACTION", "hidden.before": "9"},
    )
    assert await redirected(FakeAdmin(old), "b") == [
        ("create", "b", (3, {"cleanup.policy": "COMPACTION"})),
        ("alter", "a", 4),
    ]


async def test_done_again_it_does_nothing() -> None:
    assert await redirected(FakeAdmin(at("a", 4), at("b", 6)), "b") == []


async def test_the_way_back_is_the_same_way() -> None:
    assert await redirected(FakeAdmin(at("a", 4), at("b", 6)), "a") == [
        ("alter", "a", 6),
        ("alter", "b", 4),
    ]


async def test_a_topic_may_be_spread_over_more() -> None:
    assert await redirected(FakeAdmin(at("a", 6)), "a", "b") == [("create", "b", (3, {}))]


async def test_a_topic_of_another_kind_is_not_taken_for_it() -> None:
    old = msgspec.structs.replace(at("a", 6), attributes={"cleanup.policy": "COMPACTION"})
    admin = FakeAdmin(old, at("b", 6))
    with pytest.raises(CommandError):
        await redirected(admin, "b")
    assert admin.done == []


async def test_who_has_not_read_what_is_counted_by_place() -> None:
    admin = FakeAdmin(at("a", 4), at("b", 6))
    old, new = await _places(admin, "T", ["b"])  # type: ignore[arg-type]
    assert (old.part, old.messages, old.unread, old.last_stored_ms) == (
        "old",
        20,
        {"payments": 5},
        NOW_MS,
    )
    assert (new.part, new.unread) == ("new", {})


async def test_a_group_that_is_not_there_is_refused_before_anything_is_done() -> None:
    with pytest.raises(CommandError) as caught:
        await check_groups(FakeAdmin(), ["b", "x"])  # type: ignore[arg-type]
    assert caught.value.exit_status == 2


def test_names_may_have_commas_between_them() -> None:
    assert group_names(["a,b", "b", " c"]) == ["a", "b", "c"]
    with pytest.raises(typer.BadParameter):
        group_names(["a,"])


class ReadAdmin(FakeAdmin):
    """All that is in a was read; a message comes there after some seconds."""

    def __init__(self, comes_after: float = math.inf) -> None:
        super().__init__(at("a", 4), at("b", 6))
        self.deleted: list[tuple[float, list[str]]] = []
        self._comes_at = trio.current_time() + comes_after

    async def describe_topic(self, topic: str) -> TopicDescription:
        found = await super().describe_topic(topic)
        has_come = trio.current_time() >= self._comes_at
        stored_ms = NOW_MS if has_come else NOW_MS - 1000 * QUIET_SECONDS
        queues = [TopicQueue(each.broker_name, 0, 5, 25, stored_ms) for each in self.brokers]
        return msgspec.structs.replace(found, queues=queues, groups=[])

    async def delete_topic(self, _topic: str, *, broker_names: list[str]) -> None:
        self.deleted.append((trio.current_time(), broker_names))


async def forgotten(admin: ReadAdmin, seconds: float) -> float:
    """Return after how long the old group has forgotten the topic."""
    began = trio.current_time()
    await _forget(
        admin,  # type: ignore[arg-type]
        topic="T",
        wanted=["b"],
        seconds=seconds,
        accept_unread=False,
        at_ms=lambda: NOW_MS,
    )
    ((at_second, names),) = admin.deleted
    assert names == ["a"]
    return at_second - began


async def test_a_topic_is_taken_when_every_client_has_looked_at_the_route(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await forgotten(ReadAdmin(), ROUTE_SECONDS) == ROUTE_SECONDS
    assert await forgotten(ReadAdmin(), 0) == 0


async def test_it_stays_if_a_message_comes_by_an_old_route_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admin = ReadAdmin(comes_after=ROUTE_SECONDS - 1)
    with pytest.raises(CommandError):
        await forgotten(admin, ROUTE_SECONDS)
    assert not admin.deleted
