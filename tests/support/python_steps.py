"""How many instructions of Python a call takes: alike on every machine, however busy it is.

A loop over all there is shows, and so does a comprehension; what is done in C counts as one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class StepCounter:
    """Counts the instructions of what is called while it is on, not of who switches it on."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def start(self) -> None:
        """Count from now on."""
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def stop(self) -> int:
        """Return how many there were."""
        sys.settrace(self._before)
        return self.count

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._take

    def _take(self, _frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        self.count += event == "opcode"
        return self._take


def python_steps(call: Callable[[], object]) -> int:
    """Call, and return how many instructions that took."""
    counter = StepCounter()
    counter.start()
    try:
        call()
    finally:
        counter.stop()
    return counter.count
