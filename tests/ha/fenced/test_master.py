"""One mastership, with its store, and followers that say what a test wants them to say."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ha.fenced.election import Won
from ha.fenced.epoch_file import EpochFile
from ha.fenced.events import (
    AckDecided,
    ConfirmAdvanced,
    HAEvent,
    IsrChanged,
    IsrChanging,
    ignore,
)
from ha.fenced.group_view import GroupView
from ha.fenced.lease import LeaseDeadline
from ha.fenced.master import FencedMaster
from store import PutMessage, PutMessageStatus
from tandem.cluster_file.choices import AckLevel
from tandem.coordinator.interface import (
    Compare,
    CoordinatorUnavailableError,
    Delete,
    Put,
    TransactionResult,
)
from tandem.wire.group_state import GroupState, LeaderRecord, NodeRecord, decode_state
from tandem.wire.switch_cause import SwitchCause
from tests.ha.fenced_world import FencedWorld, refused
from tests.ha.scripted_session import Desk
from tests.ha.world import fenced_config
from tests.support.reasons import words

STATE = GroupState(epoch=6, master="a", isr={"a": "a1", "b": "b1", "c": "c1"}, min_isr=2)
LEADER = LeaderRecord(node="a", session="s-a", epoch=6)
OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT


class Session(Desk):
    """Takes every change of the in-sync set, unless it is told to lose answers."""

    def __init__(self) -> None:
        super().__init__()
        self.loses_answers = False
        self.lease = LeaseDeadline(5, trio.current_time())
        self.truth = self.view = GroupView(
            revision=20,
            state=STATE,
            state_revision=20,
            leader=LEADER,
            leader_revision=20,
            nodes={
                name: NodeRecord(
                    node=name,
                    session=f"s-{name}",
                    incarnation=f"{name}1",
                    epoch=6,
                    end=0,
                    is_complete=True,
                )
                for name in ("a", "b", "c")
            },
        )

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        await trio.sleep(0.01)
        if self.loses_answers:
            raise CoordinatorUnavailableError("no answer")
        revision = self.truth.revision + 1
        assert isinstance(operations[0], Put)
        state = decode_state(operations[0].value)
        self.truth = msgspec.structs.replace(
            self.truth, revision=revision, state=state, state_revision=revision
        )
        return TransactionResult(succeeded=True, revision=revision)


class Master:
    """The mastership of node `a`."""

    def __init__(self, level: AckLevel) -> None:
        world = FencedWorld()
        self.timeline = world.timeline
        self.store = world.open_store("a")
        self.session = Session()
        self.events: list[HAEvent] = []
        self.over: list[str] = []
        self.causes: list[SwitchCause] = []
        self.answers: list[tuple[PutMessageStatus, str]] = []
        self.it = FencedMaster(
            fenced_config("a", ack_level=level),
            self.store,
            world.network.machine("127.0.0.1"),
            self.session,
            Won(state=STATE, state_revision=20, leader_revision=20, log_end=0),
            epochs=self._epochs(world),
            incarnation="a1",
            boottime=trio.current_time,
            random=random.Random(1),
            listener=self,
            on_doubt=lambda _start, _end: None,
            on_event=self.events.append,
        )

    def answered(self) -> None:
        """Nothing has to be sent."""

    def step_down(self, reason: str, cause: SwitchCause) -> None:
        self.over.append(reason)
        self.causes.append(cause)

    def resign(self, reason: str) -> None:
        self.over.append(f"resigns: {reason}")

    def _epochs(self, world: FencedWorld) -> EpochFile:
        epochs = EpochFile(world.disks["a"], "/store")
        epochs.append(6, 0)
        return epochs

    def put(self) -> int:
        end = self.store.puts.put_message(PutMessage("T", 0, b"body", b"", 1, bytes(8))).end_offset
        self.store.announce()
        return end

    def submit(self, end: int) -> None:
        self.it.submit(end, trio.current_time() + 3.0, lambda *a: self.answers.append(a))

    def connect(self, *names: str, end: int = 0) -> None:
        for name in names:
            self.it.replica_connected(name, f"{name}1", trio.current_time())
            self.ack(name, end)

    def ack(self, name: str, end: int, *, flushed: int = 0) -> None:
        self.it.replica_acked(name, end, flushed, end, trio.current_time())


@asynccontextmanager
async def running(level: AckLevel = AckLevel.WRITTEN) -> AsyncIterator[Master]:
    master = Master(level)
    with master.store:
        master.store.become_master()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(master.timeline.run)
            await nursery.start(master.store.run)
            nursery.start_soon(master.it.run)
            await trio.testing.wait_all_tasks_blocked()
            master.it.is_open = True
            yield master
            nursery.cancel_scope.cancel()


async def test_a_put_is_answered_when_every_member_has_it(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.ack("b", end)
        assert master.answers == []
        master.ack("c", end)
        assert master.answers == [(OK, "")]
        assert master.store.confirm_offset == end
        kinds = [type(event) for event in master.events]
        assert kinds == [ConfirmAdvanced, AckDecided]


async def test_where_nobody_watches_no_event_of_a_put_is_made(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as master:
        monkeypatch.setattr(master.it, "_on_event", ignore)
        for name in ("AckDecided", "ConfirmAdvanced"):
            monkeypatch.setattr(f"ha.fenced.master.{name}", None)
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.ack("b", end)
        master.ack("c", end)
        assert master.answers == [(OK, "")]


async def test_at_the_level_flushed_disks_are_waited_for(autojump_clock: MockClock) -> None:
    async with running(AckLevel.FLUSHED) as master:
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.ack("b", end, flushed=end)
        master.ack("c", end)
        await trio.sleep(0.5)
        assert master.store.flushed_where == end
        assert master.answers == []
        master.ack("c", end, flushed=end)
        assert master.answers == [(OK, "")]


async def test_what_has_everything_but_no_lease_is_not_answered(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.session.lease = LeaseDeadline(5, trio.current_time() - 5)
        master.ack("b", end)
        master.ack("c", end)
        assert master.answers == []
        assert master.it.answerable(end) == -1
        assert "lease is over" in refused(master.it)
        await trio.sleep(0.2)
        assert master.over == ["its lease is over"]
        assert master.causes == [SwitchCause.LEASE_ENDED]


async def test_the_lease_is_tested_for_every_put(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.connect("b", "c")
        assert master.it.refusal() is None
        assert master.session.lease is not None
        await trio.sleep(master.session.lease.left_seconds(trio.current_time()) - 0.001)
        assert master.it.refusal() is None
        await trio.sleep(0.001)
        assert "lease is over" in refused(master.it)


async def test_only_a_master_with_a_lease_knows_all_that_was_acknowledged(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        assert "1 of at least 2" in refused(master.it)
        assert master.it.why_behind(trio.current_time()) is None
        assert master.session.lease is not None
        left = master.session.lease.left_seconds(trio.current_time())
        assert "lease is over" in words(master.it.why_behind(trio.current_time() + left))
        master.it.is_open = False
        assert "about to become master" in words(master.it.why_behind(trio.current_time()))
        master.it.stop_answering("it resigned")
        assert "no longer master: it resigned" in words(master.it.why_behind(trio.current_time()))


async def test_members_that_left_are_missed_at_once(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.connect("b", "c")
        assert master.it.refusal() is None
        master.it.replica_lost("b", "", trio.current_time())
        assert master.it.refusal() is None
        master.it.replica_lost("c", "", trio.current_time())
        assert "1 of at least 2" in refused(master.it)
        assert master.it.refusal().is_short  # type: ignore[union-attr]


async def test_a_master_with_members_sleeps_when_its_log_grows(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as master:
        master.connect("b", "c")
        looks: list[int] = []
        monkeypatch.setattr(master.it.isr, "own_log", lambda *ends: looks.append(ends[0]))
        for _ in range(3):
            master.put()
            await trio.testing.wait_all_tasks_blocked()
        assert looks == []


async def test_a_master_that_is_alone_confirms_what_nobody_waits_for(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.connect("b", "c")
        before = master.put()
        now, replace = master.session.truth, msgspec.structs.replace
        alone = replace(STATE, isr={"a": "a1"}, version=1)
        assert master.it.confirm_offset < before
        master.it.group_changed(replace(now, state=alone, revision=21, state_revision=21))
        assert master.it.confirm_offset == before
        after = master.put()
        await trio.testing.wait_all_tasks_blocked()
        assert master.it.confirm_offset == after


async def test_at_the_level_flushed_what_nobody_waits_for_is_flushed_too(
    autojump_clock: MockClock,
) -> None:
    async with running(AckLevel.FLUSHED) as master:
        master.connect("b", "c")
        end = master.put()
        await trio.sleep(0.1)
        assert master.store.flushed_where == end


async def test_a_put_that_is_late_hears_from_whom(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.ack("b", end)
        await trio.sleep(3.1)
        assert master.answers[0][0] is LATE
        assert "c has acknowledged 0" in master.answers[0][1]


async def test_closing_answers_everybody_and_confirms_nothing_more(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.connect("b", "c")
        end = master.put()
        master.submit(end)
        master.it.stop_answering("for a test")
        assert master.it.fail_waiting()
        assert master.answers[0][0] is LATE
        assert "for a test" in master.answers[0][1]
        master.ack("b", end)
        master.ack("c", end)
        master.submit(end)
        assert [status for status, _ in master.answers] == [LATE, LATE]
        assert not any(isinstance(event, ConfirmAdvanced) for event in master.events)
        assert master.it.isr.confirm == end
        assert master.it.server._confirm_offset() == 0  # what slaves are told


async def test_a_late_member_leaves_the_set_and_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        master.connect("b", "c")
        end = master.put()
        for _ in range(60):
            master.ack("b", end)
            await trio.sleep(0.1)
        assert master.it.isr.recorded == {"a": "a1", "b": "b1"}
        assert master.it.isr.confirm == end
        kinds = [type(event) for event in master.events]
        assert kinds.index(IsrChanging) < kinds.index(IsrChanged)
        assert master.session.truth.state == master.it.state


async def test_a_removal_nobody_answered_helps_nobody(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        master.connect("b", "c")
        master.session.loses_answers = True
        end = master.put()
        for _ in range(80):
            master.ack("b", end)
            await trio.sleep(0.1)
        assert master.it.isr.outstanding
        assert master.it.isr.confirm == 0
        master.session.loses_answers = False
        await trio.sleep(1)
        assert master.it.isr.confirm == end


async def test_records_that_say_otherwise_end_it(autojump_clock: MockClock) -> None:
    async with running() as master:
        replace = msgspec.structs.replace
        now = master.session.truth
        assert master.it.group_changed(now) is None
        other = LeaderRecord(node="b", session="s-b", epoch=6)
        for view, why in (
            (replace(now, leader=None), "its leader record is gone"),
            (replace(now, leader=other), "b is master"),
            (replace(now, state=replace(STATE, epoch=7)), "epoch 7"),
            (replace(now, state=replace(STATE, master="b")), "the group's record says"),
            (replace(now, state=replace(STATE, isr={"b": "b1"})), "no longer in the in-sync set"),
            (replace(now, state=None), "epoch none"),
        ):
            assert why in words(master.it.group_changed(view))
            assert master.it.group_changed(replace(view, revision=19)) is None


async def test_a_record_older_than_its_own_ends_it(autojump_clock: MockClock) -> None:
    """The coordinator was set back, and has counted up to a newer revision since."""
    async with running() as master:
        now = master.session.truth
        assert now.state is not None
        master.it.state = msgspec.structs.replace(now.state, version=3)
        older = msgspec.structs.replace(now.state, version=2)
        why = master.it.group_changed(msgspec.structs.replace(now, state=older, revision=99))
        assert "the coordinator was set back" in words(why)


async def test_a_record_that_another_has_seen_a_newer_one_of_ends_it(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        now = master.session.truth
        newer = msgspec.structs.replace(now.nodes["c"], seen_epoch=7)
        view = msgspec.structs.replace(now, nodes={**now.nodes, "c": newer}, revision=99)
        assert "c has seen" in words(master.it.group_changed(view))


async def test_a_follower_that_objects_is_given_way_to(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.it.replica_objected("b", 0, 900)
        assert len(master.over) == 1
        assert master.over[0].startswith("resigns: b has confirmed everything below 900")


async def test_a_master_that_is_closed_gives_way_to_no_second_objection(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.it.stop_answering("its lease is over")
        master.it.replica_objected("b", 0, 900)
        assert master.over == []
        assert master.it.closed_because == "its lease is over"


async def test_where_both_have_confirmed_something_an_operator_decides(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as master:
        master.connect("b", "c")
        end = master.put()
        master.ack("b", end)
        master.ack("c", end)
        master.it.replica_objected("b", 0, 900)
        assert master.over == []
        assert "an operator decides" in caplog.text


async def test_it_gives_way_to_a_node_that_has_confirmed_more_and_follows_nobody(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        now = master.session.truth
        ahead = msgspec.structs.replace(now.nodes["c"], confirm=master.store.max_physical_offset)
        master.session.view = msgspec.structs.replace(now, nodes={**now.nodes, "c": ahead})
        await trio.sleep(1)
        assert master.over == []
        ahead = msgspec.structs.replace(ahead, confirm=ahead.confirm + 1)
        master.session.view = msgspec.structs.replace(now, nodes={**now.nodes, "c": ahead})
        await trio.sleep(1)
        assert len(master.over) == 1
        assert "c has confirmed everything below" in master.over[0]


async def test_short_of_members_it_resigns_if_another_may_do_better(
    autojump_clock: MockClock,
) -> None:
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        await trio.sleep(10.2)
        assert len(master.over) == 1
        assert master.over[0].startswith("resigns: for 10 s 1 of at least 2")


@pytest.mark.parametrize(
    ("ahead", "incarnation", "count"), [(1, "b1", 1), (0, "b1", 0), (1, "x", 0)]
)
async def test_short_of_a_member_that_has_promised_more_it_resigns_at_once(
    autojump_clock: MockClock, ahead: int, incarnation: str, count: int
) -> None:
    """Nobody else has to be known to be complete: the coordinator gave this epoch twice."""
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        now, epoch = master.session.truth, master.it.epoch
        nodes = {
            name: msgspec.structs.replace(node, is_complete=False)
            for name, node in now.nodes.items()
        }
        nodes["b"] = msgspec.structs.replace(
            nodes["b"], promised=epoch + ahead, incarnation=incarnation
        )
        master.session.view = msgspec.structs.replace(now, nodes=nodes)
        await trio.sleep(1)
        expected = f"resigns: b has promised epoch {epoch + 1} and never follows one of {epoch}"
        assert len(master.over) == count
        assert all(over.startswith(expected) for over in master.over)


async def test_without_another_it_stays(autojump_clock: MockClock) -> None:
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        alone = {"a": master.session.truth.nodes["a"]}
        master.session.view = msgspec.structs.replace(master.session.truth, nodes=alone)
        await trio.sleep(30)
        assert master.over == []


@pytest.mark.parametrize(
    "changes", [{"trouble": "a sync failed"}, {"incarnation": "another"}, {"is_complete": False}]
)
async def test_it_stays_if_no_other_could_become_master(
    autojump_clock: MockClock, changes: dict[str, str]
) -> None:
    async with running() as master:
        master.session.lease = LeaseDeadline(100, trio.current_time())
        now = master.session.truth
        nodes = {
            name: msgspec.structs.replace(node, **changes) if name != "a" else node
            for name, node in now.nodes.items()
        }
        master.session.view = msgspec.structs.replace(now, nodes=nodes)
        await trio.sleep(30)
        assert master.it.others_electable() == []
        assert master.over == []


async def test_it_opens_when_the_set_has_its_log() -> None:
    master = Master(AckLevel.WRITTEN)
    with master.store:
        master.store.become_master()
        end = master.put()
        master.it.epoch_start = end
        master.connect("b", "c")
        assert not master.it.caught_up.is_set()
        assert "b has acknowledged 0; c has acknowledged 0" in master.it.why_not_open
        master.ack("b", end)
        master.ack("c", end)
        assert master.it.caught_up.is_set()
