"""How many instructions does a message take, in another version and in this one?

    python benchmarks/instructions.py OLD [NEW] [--only python,store,nodes] [--keep DIR]

OLD and NEW (this checkout, if it is left out) are checkouts, each with its `.venv` and its loops in
C. Whatever else a machine does, an instruction is an instruction: this compares versions where
seconds cannot.

- python: instructions of Python, trio's among them. Whole nodes are simulated on virtual time under
  the loads of `tests/test_put_path.py`, so they are the same in every run; what is done in C is not
  seen.
- store: instructions of the processor, by valgrind's callgrind. A store takes messages of 1 KB, and
  is recovered.
- nodes: the same of the simulated nodes, with the simulation. This takes minutes.

Nodes in processes of their own would be no good for this: what they do now and then, they do more
often for each message the slower they are. Instructions of the system are not counted, nor what a
miss of a cache costs. `--keep DIR` leaves what callgrind says of each function there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    "python": ("counted_nodes.py", "python"),
    "store": ("counted_store.py", "processor"),
    "nodes": ("counted_nodes.py", "processor"),
}
"""The program that is counted, and what is counted of it."""

TOTAL = re.compile(rb"^totals: (\d+)", re.MULTILINE)

Found = dict[str, float]
"""By what was done: instructions for each message."""


class Side(NamedTuple):
    """One of the two trees."""

    name: str
    tree: Path
    keep: Path | None

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.tree / ".venv" / "bin" / "python"

    def check(self, *, needs_valgrind: bool) -> None:
        """End with a sentence if it cannot be counted."""
        if not self.python.exists():
            sys.exit(f"{self.tree} has no .venv: run {self.tree}/scripts/setup first")
        for tool in ("valgrind", "vgdb") if needs_valgrind else ():
            if shutil.which(tool) is None:
                sys.exit(f"{tool} is missing: install valgrind (Debian: apt-get install valgrind)")


class Callgrind:
    """Counts in the process that is started behind `command`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._dumps_count = 0
        self.command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
            f"--vgdb-prefix={directory}/vgdb",
            f"--callgrind-out-file={directory}/out",
            f"--log-file={directory}/log",
        ]

    def order(self, pid: int, order: str) -> None:
        """Give it an order."""
        command = ["vgdb", f"--vgdb-prefix={self._directory}/vgdb", f"--pid={pid}", *order.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"valgrind does not take {order!r}: {done.stderr.strip()}")

    def begin(self, pid: int) -> None:
        """Count from now on."""
        self.order(pid, "instrumentation on")
        self.order(pid, "zero")

    def end(self, pid: int) -> int:
        """Return how many instructions there were."""
        self.order(pid, "dump")
        self.order(pid, "instrumentation off")
        self._dumps_count += 1
        total = TOTAL.search(self.last.read_bytes())
        return 0 if total is None else int(total[1])

    @property
    def last(self) -> Path:
        """Return the file with what was counted last, function by function."""
        return self._directory / f"out.{self._dumps_count}"


def count(kind: str, side: Side) -> Found:
    """Run a program in a tree, and return what its messages took."""
    program, counted = KINDS[kind]
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        callgrind = Callgrind(Path(name))
        data = Path(name, "data")
        data.mkdir()
        arguments = ["-P", str(ROOT / "benchmarks" / program), str(data), counted]
        behind = callgrind.command if counted == "processor" else []
        with subprocess.Popen(
            [*behind, str(side.python), *arguments],
            cwd=side.tree,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            taken = 0
            for line in process.stdout:
                if line == "begin\n":
                    callgrind.begin(process.pid)
                elif line == "end\n":
                    taken = callgrind.end(process.pid)
                else:
                    what, messages, own = json.loads(line)
                    found[f"{kind}: {what}"] = (own or taken) / messages
                    if side.keep is not None and taken:
                        file = re.sub(r"\W+", "-", f"{side.name} {kind} {what}")
                        shutil.copyfile(callgrind.last, side.keep / file)
                    continue
                print(file=process.stdin, flush=True)
        if process.returncode:
            sys.exit(f"{program} has failed in {side.tree}, see above")
    return found


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas between")
    parser.add_argument("--keep", type=Path, help="a directory for what callgrind says")
    options = parser.parse_args()
    kinds = options.only.split(",")
    if unknown := {*kinds} - {*KINDS}:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(KINDS)}")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    sides = [Side(name, getattr(options, name).resolve(), options.keep) for name in ("old", "new")]
    for side in sides:
        side.check(needs_valgrind=kinds != ["python"])
    print("| a message | old | new | new : old |\n| --- | ---: | ---: | ---: |")
    # Instructions do not care how long they take, so all are counted at once.
    with ThreadPoolExecutor(2 * len(kinds)) as pool:
        pairs = [[pool.submit(count, kind, side) for side in sides] for kind in kinds]
        for old, new in pairs:
            for what, before in old.result().items():
                after = new.result()[what]
                print(
                    f"| {what} | {before:,.0f} | {after:,.0f} | {after / before:.3f} |", flush=True
                )


if __name__ == "__main__":
    main()
