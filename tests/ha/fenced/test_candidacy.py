"""One candidate: turns, answers that get lost, and who has won in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from ha.fenced.candidacy import Candidacy
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.election import Decision, Election, Follow, GroupView, OwnFacts, Run
from ha.fenced.lease import LeaseDeadline
from tandem.coordinator.interface import (
    Compare,
    CoordinatorUnavailableError,
    Delete,
    LeaseLostError,
    Put,
    TransactionResult,
)
from tandem.wire.group_state import (
    GroupState,
    LeaderRecord,
    NodeRecord,
    decode_leader,
    decode_state,
)
from tests.ha.fenced_world import KEYS, fenced_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

STATE = GroupState(epoch=5, master="b", isr={"a": "a1", "b": "b1", "c": "c1"}, min_isr=2)
NODES = {
    name: NodeRecord(
        node=name, session=f"s-{name}", incarnation=f"{name}1", epoch=5, end=100, promised=5
    )
    for name in ("a", "c")
}
OWN = OwnFacts(
    name="a",
    session="s-a",
    incarnation="a1",
    log_epoch=5,
    log_end=100,
    promised=6,
    trouble="",
    members=("a", "b", "c"),
    min_isr=2,
)


class Desk(CoordinatorSession):
    """A session whose coordinator is a script: what becomes of each transaction, in order.

    "take": taken. "lose": taken, the answer is lost. "drop": never arrives. "fail": refused because
    another was faster. "lease": the lease is gone.
    """

    def __init__(self, *script: str) -> None:
        super().__init__(
            fenced_config("a"),
            coordinator=None,  # type: ignore[arg-type] # nothing of it is called
            session="s-a",
            boottime=trio.current_time,
            describe=lambda: NODES["a"],
            on_view=lambda _: None,
            on_lost=lambda _: None,
        )
        self.script = list(script)
        self.asked_at: list[float] = []
        self.lease = LeaseDeadline(1000, trio.current_time())
        self.truth = GroupView(revision=10, state=STATE, state_revision=9, nodes=NODES)
        self.view = self.truth

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        self.asked_at.append(trio.current_time())
        assert list(compares) == [Compare(KEYS.state, 9), Compare(KEYS.leader, 0)]
        await trio.sleep(0.001)
        fate = self.script.pop(0)
        if fate == "lease":
            raise LeaseLostError("gone")
        succeeded = fate in ("take", "lose") and self.truth.leader is None
        if succeeded:
            state, leader = operations
            assert isinstance(state, Put)
            assert isinstance(leader, Put)
            self._write(decode_state(state.value), decode_leader(leader.value))
        elif fate == "fail":
            winner = msgspec.structs.replace(STATE, epoch=6, master="c")
            self._write(winner, LeaderRecord(node="c", session="s-c", epoch=6))
        if fate in ("lose", "drop"):
            raise CoordinatorUnavailableError("no answer")
        return TransactionResult(succeeded, self.truth.revision)

    def _write(self, state: GroupState, leader: LeaderRecord) -> None:
        self.truth = msgspec.structs.replace(
            self.truth,
            revision=11,
            state=state,
            state_revision=11,
            leader=leader,
            leader_revision=11,
        )

    async def refresh(self) -> GroupView:
        await trio.sleep(0.001)
        self.view = self.truth
        return self.truth

    def candidacy(self) -> Candidacy:
        election = Election()

        def decide() -> Decision:
            assert self.view is not None
            return election.decide(self.view, OWN, trio.current_time())

        return Candidacy(
            self,
            election,
            epoch=6,
            log_end=100,
            own=lambda: OWN,
            decide=decide,
            boottime=trio.current_time,
            wall_clock_ms=lambda: 7,
        )


async def test_a_transaction_that_is_taken_is_won(autojump_clock: MockClock) -> None:
    desk = Desk("take")
    won = await desk.candidacy().run()
    assert won is not None
    assert (won.state.epoch, won.state.master, won.log_end) == (6, "a", 100)
    assert won.state.isr == {"a": "a1", "c": "c1"}
    assert won.state_revision == won.leader_revision == 11


async def test_a_lost_answer_is_looked_up(autojump_clock: MockClock) -> None:
    desk = Desk("lose", "take")
    won = await desk.candidacy().run()
    assert won is not None
    assert won.state == desk.truth.state
    assert (won.state_revision, won.leader_revision) == (11, 11)


async def test_what_never_arrived_is_asked_again(autojump_clock: MockClock) -> None:
    desk = Desk("drop", "drop", "take")
    assert await desk.candidacy().run() is not None
    assert len(desk.asked_at) == 3


async def test_another_who_was_faster_has_won(autojump_clock: MockClock) -> None:
    desk = Desk("fail")
    assert await desk.candidacy().run() is None
    assert desk.view is not None
    assert desk.candidacy()._decide() == Follow("c", 6)


async def test_a_lost_lease_ends_it(autojump_clock: MockClock) -> None:
    with pytest.raises(LeaseLostError):
        await Desk("lease").candidacy().run()


async def test_nobody_asks_with_a_lease_that_may_be_over(autojump_clock: MockClock) -> None:
    desk = Desk()
    desk.lease = LeaseDeadline(1, trio.current_time() - 10)
    assert await desk.candidacy().run() is None
    assert desk.asked_at == []


async def test_a_shorter_log_waits_for_its_turn(autojump_clock: MockClock) -> None:
    desk = Desk("take")
    longer = msgspec.structs.replace(NODES["c"], end=200)
    desk.view = desk.truth = msgspec.structs.replace(desk.truth, nodes={**NODES, "c": longer})
    began = trio.current_time()
    assert await desk.candidacy().run() is not None
    assert desk.asked_at[0] - began == pytest.approx(0.15)


async def test_what_was_taken_before_the_records_were_read_is_found(
    autojump_clock: MockClock,
) -> None:
    """The watch may know of our success before the answer to the transaction comes."""
    desk = Desk()
    desk._write(
        msgspec.structs.replace(STATE, epoch=6, master="a"),
        LeaderRecord(node="a", session="s-a", epoch=6),
    )
    desk.view = desk.truth
    candidacy = desk.candidacy()
    assert candidacy._decide() != Run(6)
    won = await candidacy.run()
    assert won is not None
    assert won.state.master == "a"
