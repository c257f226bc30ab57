"""What `instructions.py` counts in simulated nodes: instructions of Python.

    python -P bytecodes.py DIRECTORY

Run in the directory of a tree, by the Python of that tree. It plays the loads of its
`tests/test_put_path.py`, and counts instructions where that counts calls: those of all modules,
trio among them, but of the simulation.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path.cwd()))

from tests import test_put_path as put_path

if TYPE_CHECKING:
    from types import CodeType, FrameType

UNCOUNTED = ("/simulated/", "/benchmarks/", "/tests/", "deterministic_trio")


class Bytecodes:
    """Counts Python's instructions while it is on; stands for the counter of calls."""

    def __init__(self) -> None:
        self.count = 0
        self._is_counted: dict[CodeType, bool] = {}

    def start(self) -> None:
        """Count from now on."""
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Count no more."""
        sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401
        code = frame.f_code
        if code not in self._is_counted:
            name = code.co_filename
            self._is_counted[code] = not any(part in name for part in UNCOUNTED)
        if not self._is_counted[code]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._take

    def _take(self, _frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        self.count += event == "opcode"
        return self._take


def simulated(directory: Path) -> None:
    """Play each load in a world of its own; say what a message took."""
    logging.disable()
    vars(put_path)["CallCounter"] = Bytecodes
    # It has been in two places.
    loop = vars(put_path)["deterministic_trio"]
    for number, (kind, depth) in enumerate(put_path.BOUNDS):
        place = directory / str(number)
        place.mkdir()
        config = put_path.roomy_config(place, kind)
        names = put_path.NODES[kind]
        load = partial(put_path.load_and_count, config, names, depth, pulls=kind == "pull")
        counter = loop.run(1, load)
        messages = put_path.ROUNDS[depth] * depth
        what = f"simulated {kind}, {depth} in flight"
        print(json.dumps([what, counter.count / messages]), flush=True)
    print(flush=True)


if __name__ == "__main__":
    simulated(Path(sys.argv[1]))
