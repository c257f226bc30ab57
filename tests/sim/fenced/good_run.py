"""A finished run of a fenced group that kept every promise: tests of its checker spoil it."""

from enum import Enum
from typing import Final

import msgspec

from ha.fenced.events import (
    ConfirmAdvanced,
    EpochAppended,
    FrameTaken,
    HAEvent,
    MasterOpened,
    Promised,
)
from tandem.wire.group_state import GroupState
from tests.sim.engine.history import Extent, Finding, OffsetSeen, Probe
from tests.sim.engine.planted import ALL, log_of, read_of, send_of
from tests.sim.engine.walked_log import walk_log
from tests.sim.fenced.checker import FencedExpectations, check
from tests.sim.fenced.history import (
    AckSeen,
    CutSeen,
    EpochEntrySeen,
    FencedHistory,
    FinalNode,
    NodeEvent,
    OpeningSeen,
    ReportSeen,
    StateSeen,
)

NODES: Final = ("a", "b", "c")
ISR: Final = {"a": "ia", "b": "ib", "c": "ic"}
WHOLE: Final = log_of(*ALL)
RECORDS: Final = walk_log(WHOLE).records
FORK: Final = RECORDS[4].physical_offset
"""Where the second master took over."""


class Run:
    """A finished run that kept every promise, to be spoiled by a test.

    `a` was master of epoch 1 up to message 3, then `b` of epoch 2. Message 5 has no answer, 6 was
    answered FLUSH_SLAVE_TIMEOUT, 3 and 7 carry no promise.
    """

    def __init__(self) -> None:
        end = len(WHOLE)
        first_half = walk_log(WHOLE[:FORK])
        self.expectations = FencedExpectations()
        self.history = FencedHistory(
            sends=[send_of(index, record) for index, record in enumerate(RECORDS)],
            reads=[read_of("along", record, 50.0) for record in RECORDS],
            drained=[read_of("drain", record, 60.0) for record in RECORDS],
            offsets=[OffsetSeen(1.0, "g", 0, 1), OffsetSeen(2.0, "g", 0, 3)],
            probes=[Probe(1.0, succeeded=False), Probe(20.0, succeeded=True)],
            events=[
                NodeEvent(0.1, "a", 1, Promised(1)),
                NodeEvent(0.2, "a", 1, EpochAppended(1, 0)),
                NodeEvent(0.3, "a", 1, MasterOpened(1, 0)),
                NodeEvent(0.4, "b", 1, EpochAppended(1, 0)),
                NodeEvent(0.5, "b", 1, FrameTaken(1, 0, 100, 1)),
                NodeEvent(3.0, "a", 1, ConfirmAdvanced(1, FORK)),
                NodeEvent(4.0, "b", 1, Promised(2)),
                NodeEvent(4.2, "b", 1, MasterOpened(2, FORK)),
                NodeEvent(9.0, "b", 1, ConfirmAdvanced(2, end)),
            ],
            acks=[ack_of(0.6, "a", 1, RECORDS[0].end), ack_of(8.0, "b", 2, RECORDS[4].end)],
            openings=[
                OpeningSeen(0.3, "a", 1, 0, walk_log(b""), is_elected=True),
                OpeningSeen(4.2, "b", 2, FORK, first_half, is_elected=True),
            ],
            cuts=[CutSeen(5.0, "a", FORK, FORK + 9, FORK, ())],
            reports=[ReportSeen(0.6, "b", 1, 100, 50, Extent(100, 50))],
            states=[state_of(2, 1, "a"), state_of(3, 2, "b", isr={"b": "ib", "c": "ic"})],
            nodes=[
                FinalNode(
                    name,
                    walk_log(WHOLE),
                    (EpochEntrySeen(1, 0), EpochEntrySeen(2, FORK)),
                    is_master=name == "b",
                )
                for name in NODES
            ],
        )

    def check(self) -> list[Finding]:
        return check(self.history, self.expectations)

    def kinds(self) -> set[Enum]:
        return {finding.kind for finding in self.check()}

    def change(self, what: str, index: int, **changes: object) -> None:
        """Change one record of one of the lists."""
        records = getattr(self.history, what)
        records[index] = msgspec.structs.replace(records[index], **changes)

    def everywhere(self, data: bytes) -> None:
        """Put other bytes on all nodes at the end; readers see them too."""
        for index in range(len(NODES)):
            self.change("nodes", index, log=walk_log(data))
        self.tell(40.0, "b", ConfirmAdvanced(2, max(len(data), len(WHOLE))))
        records = walk_log(data).records
        self.history.reads = [read_of("along", record, 50.0) for record in records]
        self.history.drained = [read_of("drain", record, 60.0) for record in records]

    def tell(self, at: float, node: str, event: HAEvent) -> None:
        """Have a node say something."""
        self.history.events.append(NodeEvent(at, node, 1, event))


def ack_of(at: float, node: str, epoch: int, end: int) -> AckSeen:
    return AckSeen(
        at_seconds=at,
        node=node,
        epoch=epoch,
        end=end,
        used_isr=NODES,
        live_count=3,
        boottime_seconds=at,
        deadline_seconds=at + 1.0,
        true_boottime_seconds=at,
        lease="held",
        recorded_epoch=epoch,
        recorded_isr=ISR,
        stored={name: Extent(end, end) for name in NODES},
    )


def state_of(
    revision: int, epoch: int, master: str, isr: dict[str, str] | None = None
) -> StateSeen:
    state = GroupState(epoch=epoch, master=master, isr=isr or ISR, min_isr=2)
    return StateSeen(float(revision), revision, state, None)
