"""How many instructions of Python a call takes: alike on every machine, however busy it is.

A loop over all there is shows, and so does a comprehension; what is done in C counts as one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def python_steps(call: Callable[[], object]) -> int:
    """Call, and return how many instructions that took."""
    count = 0

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return take

    def take(_frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        nonlocal count
        count += event == "opcode"
        return take

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
