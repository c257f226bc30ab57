"""A session with a coordinator that is a script: for what runs for master, or is master."""

from collections.abc import Sequence

import msgspec
import trio

from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.group_view import GroupView, OwnFacts
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
    LifeRecord,
    NodeRecord,
    decode_leader,
    decode_state,
)
from tests.ha.world import KEYS, fenced_config

STATE = GroupState(epoch=5, master="b", isr={"a": "a1", "b": "b1", "c": "c1"}, min_isr=2)
NODES = {
    name: NodeRecord(
        node=name, session=f"s-{name}", incarnation=f"{name}1", epoch=5, end=100, promised=5
    )
    for name in ("a", "c")
}
OWN = OwnFacts(
    name="a",
    session_id="s-a",
    incarnation="a1",
    log_epoch=5,
    log_end=100,
    promised=6,
    is_complete=True,
    trouble=None,
    members=("a", "b", "c"),
    min_isr=2,
)


class _Own:
    """A node of which nothing is remembered."""

    def describe(self) -> NodeRecord:
        return NODES["a"]

    def judge(self, view: GroupView) -> None: ...

    def next_life(self, view: GroupView) -> None: ...

    def remembered(self, life: LifeRecord) -> None: ...


class Desk(CoordinatorSession):
    """A session whose coordinator is a script: what becomes of each transaction, in order.

    "take": taken. "lose": taken, the answer is lost. "drop": never arrives. "fail": refused because
    another was faster. "lease": the lease is gone.
    """

    def __init__(self, *script: str) -> None:
        super().__init__(
            fenced_config("a"),
            coordinator=None,  # type: ignore[arg-type] # nothing of it is called
            session_id="s-a",
            boottime=trio.current_time,
            own=_Own(),
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
            self.write(decode_state(state.value), decode_leader(leader.value))
        elif fate == "fail":
            winner = msgspec.structs.replace(STATE, epoch=6, master="c")
            self.write(winner, LeaderRecord(node="c", session="s-c", epoch=6))
        if fate in ("lose", "drop"):
            raise CoordinatorUnavailableError("no answer")
        return TransactionResult(succeeded, self.truth.revision)

    def write(self, state: GroupState, leader: LeaderRecord) -> None:
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
