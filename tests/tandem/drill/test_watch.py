from functools import partial

import trio
import trio.testing

from tandem.client import ConnectionCause, ConnectionLostError
from tandem.coordinator.interface import CoordinatorUnavailableError, KeyValue, Snapshot
from tandem.drill.lost_leases import Late
from tandem.drill.replication import Replication
from tandem.drill.timeline import Timeline
from tandem.drill.watch import (
    watch_classic_master,
    watch_lateness,
    watch_node,
    watch_records,
)
from tandem.drill.watched_group import WatchedGroup
from tandem.drill.workload import Clock
from tandem.wire.group_state import GroupKeys, GroupState, LeaderRecord, encode_record
from tandem.wire.ha_status import FencedStatus, ReplicaStatus
from tandem.wire.request_headers import HAConnectionRuntimeInfo, HARuntimeInfo
from tests.tandem.drill.samples import status

KEYS = GroupKeys("c", "g")


class Coordinator:
    """Has the records of a group, or does not answer."""

    def __init__(self) -> None:
        self.answers = True
        self.epoch = 1

    async def read(self, prefix: str) -> Snapshot:
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise CoordinatorUnavailableError("restarting")
        state = GroupState(epoch=self.epoch, master="a", isr={"a": "1", "b": "1"}, min_isr=2)
        leader = LeaderRecord(node="a", session="s", epoch=self.epoch)
        values = {KEYS.state: encode_record(state), KEYS.leader: encode_record(leader)}
        return Snapshot(1, {key: KeyValue(key, value, 1, 1, 0) for key, value in values.items()})


class Node:
    """Answers as the master, is silent, or is gone."""

    def __init__(self) -> None:
        self.mood = "well"

    async def fenced_status(self, address: str) -> FencedStatus:
        await trio.lowlevel.checkpoint()
        if self.mood == "gone":
            raise ConnectionLostError(
                address, ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
            )
        if self.mood == "frozen":
            await trio.sleep_forever()
        found = status("a", "a", 1)
        found.replicas.append(
            ReplicaStatus(name="b", connected=True, in_sync=True, written=900, flushed=900)
        )
        found.replicas.append(ReplicaStatus(name="c", connected=True, in_sync=False, written=1000))
        return found


async def test_what_is_known_follows_the_records_and_outlives_a_silent_coordinator(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    coordinator, watched = Coordinator(), WatchedGroup(["a", "b"])
    clock = Clock(trio.current_time(), 0.0)
    nursery.start_soon(watch_records, coordinator, KEYS, watched, clock)
    await trio.sleep(1)
    coordinator.answers = False
    await trio.sleep(1)
    assert watched.epoch == 1
    coordinator.answers, coordinator.epoch = True, 2
    await trio.sleep(1)
    nursery.cancel_scope.cancel()
    assert [change.kind for change in watched.history] == ["epoch", "leader-gone", "epoch"]


async def test_the_masters_word_tells_who_is_in_sync_and_how_far_behind(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    node, watched = Node(), WatchedGroup(["a", "b", "c"])
    replication = Replication({name: name for name in "abc"}, Timeline())
    clock = Clock(trio.current_time(), 0.0)
    nursery.start_soon(watch_records, Coordinator(), KEYS, watched, clock)
    nursery.start_soon(partial(watch_node, node, "a", "127.0.0.1:1", watched, replication, clock))
    await trio.sleep(1)
    assert watched.master == "a"
    assert replication.states["a"].lag_bytes == 0
    assert replication.states["b"].lag_bytes == 100
    assert not replication.states["c"].connected, "it is not in the in-sync set"
    for mood in ("gone", "frozen"):
        node.mood = mood
        await trio.sleep(2)
        assert watched.statuses["a"] is None
        assert not replication.master_answers
        node.mood = "well"
        await trio.sleep(2)
        assert replication.master_answers
    nursery.cancel_scope.cancel()


class ClassicMaster:
    """Has one slave, which lacks 100 bytes; or does not answer."""

    def __init__(self) -> None:
        self.answers = True

    async def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        await trio.lowlevel.checkpoint()
        if not self.answers:
            raise ConnectionLostError(
                address, ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
            )
        slave = HAConnectionRuntimeInfo(
            addr="127.0.0.2:4711", slave_ack_offset=900, diff=100, in_sync=True
        )
        return HARuntimeInfo(
            master=True, master_commit_log_max_offset=1000, ha_connection_info=[slave]
        )


async def test_the_master_of_a_classic_group_names_its_slaves_by_address(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    master = ClassicMaster()
    replication = Replication({"b": "127.0.0.2"}, Timeline())
    clock = Clock(trio.current_time(), 0.0)
    nursery.start_soon(watch_classic_master, master, "127.0.0.1:1", replication, clock)
    await trio.sleep(1)
    assert replication.states["b"].lag_bytes == 100
    master.answers = False
    await trio.sleep(1)
    assert not replication.master_answers
    nursery.cancel_scope.cancel()


async def test_how_late_the_drill_is_woken_is_noted_if_it_is_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Clock:
        """A machine that stops for two seconds, once."""

        readings = iter([0.0, 0.06, 0.06, 2.11, 2.11, 2.2])

        def now(self) -> float:
            return next(self.readings, float("nan"))

    lateness: list[Late] = []
    with trio.move_on_after(0.2):
        await watch_lateness(lateness, Clock())
    assert lateness == [Late(0.11, 2.0)]
