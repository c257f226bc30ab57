"""What the master says about the other nodes, for conditions, live view and report.

Of a classic group it names its slaves (request 907), of a fenced one its followers (request of
ours) and itself.
"""

from typing import Final

import msgspec

from tandem.drill.timeline import Timeline

CAUGHT_UP_BYTES: Final = 262_144
"""Under load a node is always some bytes behind; within one transfer frame counts as caught up."""


class SlaveReport(msgspec.Struct, frozen=True):
    """One connected node: its address, the log it has acknowledged, and what it lacks."""

    address: str
    ack_offset: int
    lag_bytes: int


class SlaveState(msgspec.Struct, frozen=True, kw_only=True):
    """The last that is known of a node. `lag_bytes` still grows while it is not connected."""

    connected: bool = False
    ack_offset: int = 0
    lag_bytes: int = 0

    def __str__(self) -> str:
        if not self.connected:
            return f"not connected, {self.lag_bytes:,} bytes behind"
        return "in sync" if self.lag_bytes == 0 else f"{self.lag_bytes:,} bytes behind"


class Replication:
    """The master's view of the other nodes, by name. Pure: the caller asks, this remembers."""

    def __init__(self, slave_addresses: dict[str, str], timeline: Timeline) -> None:
        """Take by what the master names each node, by node name; its name is as good."""
        self._node_by_address = {node: node for node in slave_addresses}
        self._node_by_address |= {address: node for node, address in slave_addresses.items()}
        self._timeline = timeline
        self.states = {node: SlaveState() for node in slave_addresses}
        self.sampled_at = float("-inf")
        self.master_answers = False
        self.log_end_at_first: int | None = None
        """Where the master's log ended when it was first asked: before the load."""

    def sampled(self, now: float, log_end: int, reports: list[SlaveReport]) -> None:
        """Take an answer of the master; `now` is when the question was asked."""
        self.sampled_at = now
        self.master_answers = True
        if self.log_end_at_first is None:
            self.log_end_at_first = log_end
        connected = {
            self._node_by_address[report.address]: report
            for report in reports
            if report.address in self._node_by_address
        }
        for node, before in self.states.items():
            report = connected.get(node)
            if report is None:
                state = SlaveState(
                    ack_offset=before.ack_offset, lag_bytes=max(0, log_end - before.ack_offset)
                )
            else:
                state = SlaveState(
                    connected=True,
                    ack_offset=report.ack_offset,
                    lag_bytes=max(0, report.lag_bytes),
                )
            self.states[node] = state
            self._timeline.lagged(now, node, state.lag_bytes, connected=state.connected)

    def silent(self, now: float) -> None:
        """Note that the master did not answer."""
        self.sampled_at = now
        self.master_answers = False
        for node in self.states:
            self._timeline.lagged(now, node, float("nan"), connected=False)

    def behind_at_most(self, lag_bytes_max: int) -> bool:
        """Whether the master answers and every node is connected and no further behind."""
        return self.master_answers and all(
            state.connected and state.lag_bytes <= lag_bytes_max for state in self.states.values()
        )

    def __str__(self) -> str:
        if not self.master_answers:
            return "the master does not answer"
        return ", ".join(f"{node} {state}" for node, state in self.states.items())
