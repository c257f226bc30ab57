"""Lease, record and view of one node, against a coordinator that misbehaves."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced.coordinator_session import CALL_SECONDS_MAX, CoordinatorSession, limited
from ha.fenced.group_view import GroupView
from node.simulated.coordinator import SimulatedCoordinator
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from tandem.coordinator.interface import CoordinatorUnavailableError, Delete, Put
from tandem.coordinator.kv_records import PutOperation
from tandem.wire.group_state import (
    GroupState,
    LeaderRecord,
    LifeRecord,
    NodeRecord,
    decode_life,
    decode_node,
    encode_record,
)
from tests.ha.fenced_world import COORDINATOR_IP
from tests.ha.world import IPS, KEYS, fenced_config


class Node:
    """A session, and what it told."""

    def __init__(self, session_name: str = "s1") -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.coordinator = SimulatedCoordinator(COORDINATOR_IP, self.network, random.Random(2))
        self.machine = self.network.machine(IPS["a"])
        self.client = self.coordinator.client(self.machine)
        self.end = 0
        self.trouble = ""
        self.views: list[GroupView] = []
        self.lost: list[str] = []
        self.life: LifeRecord | None = None
        self.judged: list[GroupView] = []
        self.known: list[LifeRecord] = []
        self.session = CoordinatorSession(
            fenced_config("a"),
            self.client,
            session_id=session_name,
            boottime=trio.current_time,
            own=self,
        )

    def group_changed(self, view: GroupView) -> None:
        self.views.append(view)

    def lease_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def judge(self, view: GroupView) -> None:
        self.judged.append(view)

    def next_life(self, view: GroupView) -> LifeRecord | None:
        return self.life

    def remembered(self, life: LifeRecord) -> None:
        self.known.append(life)

    def describe(self) -> NodeRecord:
        return NodeRecord(
            node="a",
            session=self.session.session_id,
            incarnation="a1",
            epoch=0,
            end=self.end,
            trouble=self.trouble,
        )

    @property
    def record(self) -> NodeRecord | None:
        item = self.coordinator.item(KEYS.node("a"))
        return decode_node(item.value) if item else None

    async def registered(self) -> None:
        with trio.fail_after(30):
            while self.session.lease is None:
                await self.session.changed.wait()


@asynccontextmanager
async def running(before: Sequence[Put] = ()) -> AsyncIterator[Node]:
    node = Node()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.timeline.run)
        if before:
            await node.client.transact([], before)
        nursery.start_soon(node.session.run, node)
        yield node
        nursery.cancel_scope.cancel()


async def test_a_node_registers_and_stays_registered(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        assert node.record == node.describe()
        await trio.sleep(60)
        assert node.session.holds()
        assert node.record is not None
        assert node.lost == []


async def test_a_change_is_known_long_before_the_next_poll(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        await trio.sleep(3)
        count = len(node.views)
        await node.client.transact([], [Put(f"{KEYS.prefix}other", b"x")])
        await trio.sleep(0.05)
        assert len(node.views) == count + 1


@pytest.mark.parametrize("value", [b"\xff", b"[" * 100_000, b'{"node":"\xff"}'])
@pytest.mark.parametrize("key", [KEYS.state, KEYS.leader, KEYS.node("b")])
async def test_a_record_that_cannot_be_read_is_named_and_read_again(
    autojump_clock: MockClock, key: str, value: bytes
) -> None:
    async with running() as node:
        await node.registered()
        await node.client.transact([], [Put(key, value)])
        await trio.sleep(5)
        assert f"{key} in the coordinator holds" in node.session.trouble
        assert "delete this key" in node.session.trouble
        assert node.session.holds()
        await node.client.transact([], [Delete(key)])
        await trio.sleep(5)
        assert node.session.trouble == ""
        assert node.session.holds()


async def test_a_node_waits_at_its_start_for_a_record_that_can_be_read(
    autojump_clock: MockClock,
) -> None:
    async with running(before=[Put(KEYS.node("a"), b"\xff")]) as node:
        await trio.sleep(10)
        assert node.session.lease is None
        assert f"{KEYS.node('a')} in the coordinator holds" in node.session.trouble
        await node.client.transact([], [Delete(KEYS.node("a"))])
        await node.registered()


async def test_without_a_watch_polling_finds_it(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        node.coordinator.watch_delay_seconds = 1000.0
        await trio.sleep(3)
        count = len(node.views)
        await node.client.transact([], [Put(f"{KEYS.prefix}other", b"x")])
        await trio.sleep(1.1)
        assert len(node.views) == count + 1


async def test_what_is_known_never_goes_back(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        for number in range(20):
            await node.client.transact([], [Put(f"{KEYS.prefix}other", b"%d" % number)])
        await trio.sleep(2)
        revisions = [view.revision for view in node.views]
        assert revisions == sorted(set(revisions))


async def test_a_record_of_another_process_is_waited_out(autojump_clock: MockClock) -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.timeline.run)
        lease = await node.client.grant(5)
        before = NodeRecord(node="a", session="s0", incarnation="a1", epoch=0, end=0)
        await node.client.transact([], [Put(KEYS.node("a"), encode_record(before), lease.lease_id)])
        nursery.start_soon(node.session.run, node)
        await trio.sleep(3)
        assert node.session.lease is None
        assert node.record == before
        await node.registered()
        assert node.record == node.describe()
        nursery.cancel_scope.cancel()


async def test_a_lost_answer_to_the_registration_does_not_lock_us_out(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    node.coordinator.lost_replies[IPS["a"]] = 4
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.timeline.run)
        nursery.start_soon(node.session.run, node)
        await node.registered()
        await trio.sleep(10)
        assert node.session.holds()
        assert node.record == node.describe()
        nursery.cancel_scope.cancel()


async def test_a_lease_that_ends_is_told_and_taken_anew(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        node.coordinator.revoke_leases_of(KEYS.node("a"))
        await trio.sleep(0.1)
        assert len(node.lost) == 1
        await node.registered()
        assert node.record == node.describe()
        assert node.session.holds()


async def test_without_answers_the_lease_cannot_be_relied_on(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        node.network.stall(IPS["a"], COORDINATOR_IP)
        await trio.sleep(4.6)
        assert not node.session.holds()
        node.network.heal_all()
        await trio.sleep(3)
        assert node.session.holds()


async def test_a_lease_runs_from_when_it_was_asked_for_however_late_the_answer(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        await node.registered()
        node.network.slow(COORDINATOR_IP, IPS["a"], delay_seconds=1.0, bytes_per_second=1e6)
        for _ in range(200):
            await trio.sleep(0.1)
            now = trio.current_time()
            assert node.session.lease is not None
            left_seconds = node.session.lease.left_seconds(now)
            assert left_seconds <= node.coordinator.store.time_left(node.session.lease_id, now)


async def test_the_first_lease_runs_from_when_it_was_asked_for_too(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        node.network.slow(COORDINATOR_IP, IPS["a"], delay_seconds=1.0, bytes_per_second=1e6)
        await node.registered()
        now = trio.current_time()
        assert node.session.lease is not None
        left_seconds = node.session.lease.left_seconds(now)
        assert left_seconds <= node.coordinator.store.time_left(node.session.lease_id, now)


async def test_one_lost_keep_alive_does_no_harm(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        for _ in range(20):
            node.coordinator.lost_replies[IPS["a"]] = 1
            await trio.sleep(3)
            assert node.session.holds()


async def test_the_record_is_kept_roughly_true_and_troubles_are_told_at_once(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        await node.registered()
        node.end = 4096
        await trio.sleep(4)
        assert node.record is not None
        assert node.record.end == 4096
        node.trouble = "a sync failed"
        await trio.sleep(0.5)
        assert node.record.trouble == "a sync failed"


async def test_a_coordinator_that_was_set_back_is_believed_after_the_lease_was_given_up(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        image = node.coordinator.store.image()
        await node.registered()
        for number in range(5):
            await node.client.transact([], [Put(f"{KEYS.prefix}other", b"%d" % number)])
        await trio.sleep(2)
        known = node.session.view
        assert known is not None
        node.coordinator.restore(image)
        await trio.sleep(3)
        assert len(node.lost) == 1
        assert node.session.view is not None
        assert node.session.view.revision < known.revision
        assert node.session.holds()
        assert node.record == node.describe()


async def test_a_lease_that_was_in_the_backup_is_given_up_as_well(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        await node.registered()
        await trio.sleep(2)
        image = node.coordinator.store.image()
        for number in range(5):
            await node.client.transact([], [Put(f"{KEYS.prefix}other", b"%d" % number)])
        await trio.sleep(2)
        node.coordinator.restore(image)
        await trio.sleep(2)
        assert len(node.lost) == 1


async def test_a_coordinator_that_lost_only_what_this_node_wrote_last_was_set_back_too(
    autojump_clock: MockClock,
) -> None:
    """Nobody has read the record since: the reading alone is no older than the one before."""
    async with running() as node:
        await node.registered()
        await trio.sleep(2)
        image, known = node.coordinator.store.image(), node.session.view
        node.end = 4096
        await node.session.publish()
        node.coordinator.restore(image)
        assert known == node.session.view
        await trio.sleep(30)
        assert len(node.lost) == 1
        assert node.session.holds()
        assert node.record == node.describe()


async def test_a_record_of_this_name_by_another_process_ends_the_lease(
    autojump_clock: MockClock,
) -> None:
    async with running() as node:
        await node.registered()
        other = msgspec.structs.replace(node.describe(), session="s2")
        await node.client.transact([], [Put(KEYS.node("a"), encode_record(other))])
        await trio.sleep(1)
        assert len(node.lost) == 1
        assert node.record == other


async def test_a_life_that_begins_meanwhile_is_looked_at_before_another(
    autojump_clock: MockClock,
) -> None:
    """Else a copy of the directory would take the place of the one that ran last, unseen."""
    other = LifeRecord(node="a", life=7, token="t7", incarnation="a1", epoch=1, confirm=900)

    def begin_life(_ip: str, call: str) -> None:
        if call == "grant" and node.coordinator.item(KEYS.life("a")) is None:
            put = PutOperation(KEYS.life("a").encode(), encode_record(other))
            node.coordinator.store.transact((), (put,), (), trio.current_time())

    async with running() as node:
        node.coordinator.on_call = begin_life
        await node.registered()
        assert node.judged[0].lives == {}
        assert node.judged[-1].lives == {"a": other}


async def test_closing_ends_what_hangs_on_the_lease(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        await node.session.close()
        assert node.record is None


async def test_an_answer_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    async def no_answer() -> None:
        await trio.sleep_forever()

    began = trio.current_time()
    with pytest.raises(CoordinatorUnavailableError, match="no answer within 2 s"):
        await limited(no_answer())
    assert trio.current_time() - began == CALL_SECONDS_MAX


async def test_the_state_is_replaced_only_as_it_was_known(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        session, keys = node.session, node.session.keys
        state = GroupState(epoch=1, master="a", isr={"a": "a1"}, min_isr=1)
        leader = LeaderRecord(node="a", session="s1", epoch=1)
        first = await session.transact(
            [], [Put(keys.state, encode_record(state)), Put(keys.leader, encode_record(leader))]
        )
        newer = GroupState(epoch=1, master="a", isr={"a": "a1"}, min_isr=1, version=1)
        second = await session.replace_state(
            newer, state_revision=first.revision, leader_revision=first.revision
        )
        assert second.succeeded
        late = await session.replace_state(
            state, state_revision=first.revision, leader_revision=first.revision, gives_up=True
        )
        assert not late.succeeded
        assert (await session.refresh()).leader == leader
        last = await session.replace_state(
            newer, state_revision=second.revision, leader_revision=first.revision, gives_up=True
        )
        assert last.succeeded
        view = await session.refresh()
        assert (view.state, view.leader) == (newer, None)


# what is remembered of the node


async def test_a_life_is_registered_with_the_node(autojump_clock: MockClock) -> None:
    async with running() as node:
        await node.registered()
        assert node.coordinator.item(KEYS.life("a")) is None
    async with running() as node:
        node.life = life = LifeRecord(
            node="a", life=1, token="t", incarnation="a1", epoch=1, confirm=5
        )
        await node.registered()
        item = node.coordinator.item(KEYS.life("a"))
        assert item is not None
        assert decode_life(item.value) == life
        assert node.known == [life]
        assert node.judged, "before it has registered"
        node.end, node.life = 10, msgspec.structs.replace(life, confirm=9)
        await node.session.publish()
        item = node.coordinator.item(KEYS.life("a"))
        assert item is not None
        assert decode_life(item.value).confirm == 9


async def test_the_last_word_of_a_session_is_how_far_the_node_was(
    autojump_clock: MockClock,
) -> None:
    """A copy of its directory that was made a moment before shows by that."""
    async with running() as node:
        node.life = life = LifeRecord(
            node="a", life=1, token="t", incarnation="a1", epoch=1, confirm=5
        )
        await node.registered()
        node.life = msgspec.structs.replace(life, confirm=900)
        with trio.CancelScope() as stopping:
            stopping.cancel()
            await node.session.close()
        item = node.coordinator.item(KEYS.life("a"))
        assert item is not None
        assert decode_life(item.value).confirm == 900
        assert node.record is None
