"""What `instructions.py` counts in simulated nodes, where `tests/test_put_path.py` counts calls.

    python -P counted_nodes.py DIRECTORY python       counts Python's own instructions
    python -P counted_nodes.py DIRECTORY processor    is counted by others: says when a load begins,
                                                      and when it is over

Run in the directory of a tree, by the Python of that tree, whose loads it plays. Of Python's
instructions those of all modules are counted, trio among them, but not those of the simulation.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path.cwd()))


from tandem.wire import native
from tests import test_put_path as put_path

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


class Steps:
    """Says when it is on, and waits for an answer; stands for the counter of calls."""

    count = 0

    def start(self) -> None:
        """Say that a load begins."""
        print("begin", flush=True)
        sys.stdin.readline()

    def stop(self) -> None:
        """Say that it is over."""
        print("end", flush=True)
        sys.stdin.readline()


COUNTERS = {"python": Bytecodes, "processor": Steps}


def simulated(directory: Path, counted: str) -> None:
    """Play each load in a world of its own, and say how many messages there were."""
    if native.loops is None:
        sys.exit(f"{Path.cwd()} has no loops in C: run its scripts/setup first")
    logging.disable()
    vars(put_path)["CallCounter"] = COUNTERS[counted]
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
        print(json.dumps([f"{kind}, {depth} in flight", messages, counter.count]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path, help="an empty one")
    parser.add_argument("counted", choices=sorted(COUNTERS))
    arguments = parser.parse_args()
    simulated(arguments.directory, arguments.counted)
