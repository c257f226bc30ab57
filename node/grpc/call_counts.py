"""How many calls there are and were, how they ended, and how long they took.

What a client calls that is not served is counted under one name, so no client makes a series.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.histogram_figures import histogram_figures
from node.grpc.errors import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_OK,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNIMPLEMENTED,
)
from node.grpc.protocol import messages as pb
from store.machine.histogram import Histogram

NOT_SERVED: Final = "other"
"""In place of the method of a call that is not served."""

GIVEN_UP: Final = "given_up"
"""How a call ended that its client gave up, or whose connection ended."""

_STATUS_NAMES: Final = {
    GRPC_INVALID_ARGUMENT: "grpc_invalid_argument",
    GRPC_RESOURCE_EXHAUSTED: "grpc_resource_exhausted",
    GRPC_UNIMPLEMENTED: "grpc_unimplemented",
    GRPC_INTERNAL: "grpc_internal",
}
_CODE_NAMES: Final = {number: name.lower() for name, number in pb.Code.items()}


def outcome_name(status: int | None, code: int) -> str:
    """Return how a call ended: RocketMQ's code if gRPC says OK; `status` None: it was given up."""
    if status is None:
        return GIVEN_UP
    if status != GRPC_OK:
        return _STATUS_NAMES.get(status, "grpc_other")
    return _CODE_NAMES.get(code, "other")


class CallCounts:
    """Those of one broker, from its opening on.

    Attributes:
        connections_count: How many connections of gRPC there are.
    """

    def __init__(self) -> None:
        self.connections_count = 0
        self._open: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(Histogram)

    def began(self, method: str) -> None:
        """A call that is served has begun."""
        self._open[method] += 1

    def ended(self, method: str, outcome: str, seconds: float) -> None:
        """It is over."""
        self._open[method] -= 1
        self._ended[method, outcome] += 1
        self._seconds[method].count(seconds)

    def refused(self, outcome: str) -> None:
        """A call was refused that is not served."""
        self._ended[NOT_SERVED, outcome] += 1

    def figures(self) -> Iterator[Figure]:
        """Yield them all."""
        yield Figure("tandem_grpc_connections", NO_LABELS, self.connections_count)
        for method, count in list(self._open.items()):
            yield Figure("tandem_grpc_open_calls", Labels(method=method), count)
        for (method, outcome), count in list(self._ended.items()):
            labels = Labels(method=method, outcome=outcome)
            yield Figure("tandem_grpc_calls_total", labels, count)
        for method, histogram in list(self._seconds.items()):
            yield from histogram_figures("tandem_grpc_call_seconds", histogram, method=method)
