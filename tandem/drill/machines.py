"""The machines under the nodes: without power, with slow syncs, with a clock that is wrong.

A library in C is preloaded into each node (`machine.c`). Where power may be cut it keeps a copy of
what was synced, which is all that a loss of power leaves: the page cache outlives the end of a
process, and a drill cannot take it away otherwise. It counts what it does to a node. Where there
is no C compiler, or no Linux, scenarios that need it are reported as not possible here; they are
not counted as passed.
"""

import os
import shutil
import struct
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from tandem.cluster.node_process import NodeProcess, OpenProcess, open_process
from tandem.drill.breakable import Felt
from tandem.drill.machine_disk import restore, taken
from tandem.drill.scenario import NodeFailedError, NotPossibleError

SOURCE: Final = Path(__file__).with_name("machine.c")
COMPILE_SECONDS_MAX: Final = 120.0
LIBRARY_NAME: Final = "machine.so"
STORE_VARIABLE: Final = "TANDEM_MACHINE_STORE"
MACHINE_VARIABLE: Final = "TANDEM_MACHINE"

_NS: Final = 1_000_000_000


class _Control(msgspec.Struct, kw_only=True):
    """What a machine is told and what it says: `struct control` of `machine.c`."""

    clock_ahead_ns: int = 0
    sync_delay_ns: int = 0
    lies: int = 0
    has_boot_id: int = 0
    failed: int = 0
    keeps: int = 0
    started: int = 0
    syncs_delayed: int = 0
    syncs_forgotten: int = 0
    times_wrong: int = 0


_FIELDS: Final = _Control.__struct_fields__
_NUMBER: Final = struct.Struct("=q")
_NUMBERS: Final = struct.Struct(f"={len(_FIELDS)}q")


class Machines:
    """A machine for each node; `why_not`: why there are none, or "".

    `keeps`: what is synced is kept, so that power can be cut. That makes syncs slower.
    """

    def __init__(
        self,
        directory: Path,
        stores: Mapping[str, Path],
        why_not: str = "",
        *,
        keeps: bool = True,
    ) -> None:
        self._keeps = keeps
        self._directory = directory
        self._stores = dict(stores)
        self._why_not = why_not
        self._dark: set[str] = set()
        """Nodes that have not been started since their power was cut, or their disk exchanged."""

    def environment(self, node: str) -> dict[str, str]:
        """Return what a node needs in its environment, to be on its machine; nothing without one.

        Its store is there from now on: the library begins with what is in it.
        """
        if self._why_not:
            return {}
        machine = self._machine(node)
        self._dark.discard(node)
        self._write(node, "started", 0)
        for half in machine.glob("disk.*"):
            shutil.rmtree(half)
        self._stores[node].mkdir(parents=True, exist_ok=True)
        library = str(self._directory / LIBRARY_NAME)
        others = os.environ.get("LD_PRELOAD")
        return {
            "LD_PRELOAD": f"{library}:{others}" if others else library,
            MACHINE_VARIABLE: str(machine),
            STORE_VARIABLE: str(self._stores[node]),
        }

    def opening(self, open_node: OpenProcess = open_process) -> OpenProcess:
        """Return what starts nodes of ours on their machines: `--name` says which it is."""

        async def opened(
            command: Sequence[str], log: IO[bytes], environment: dict[str, str]
        ) -> NodeProcess:
            node = command[command.index("--name") + 1]
            return await open_node(command, log, {**environment, **self.environment(node)})

        return opened

    def check_ready(self, nodes: Sequence[str]) -> None:
        """Find out that machines of nodes can be hurt, before anything is.

        Raises:
            NotPossibleError: they are on no machines of ours.
            NodeFailedError: the library is not in one of them, which its log says.
        """
        for node in nodes:
            if not self._read(node).started and node not in self._dark:
                raise NodeFailedError(
                    f"{node} was started without {LIBRARY_NAME}, or ended before it was ready, so"
                    " that nothing can be done to its machine: see the first lines of its log"
                )

    def felt(self, node: str) -> Felt:
        """Return what a machine has done to its node until now."""
        control = self._read(node)
        return Felt(
            syncs_delayed=control.syncs_delayed,
            syncs_forgotten=control.syncs_forgotten,
            times_wrong=control.times_wrong,
        )

    def cut_power(self, node: str) -> int:
        """Leave of the store of a node that is down what had been synced. It boots anew.

        Returns how many files and directories that has changed. Where the node has not been started
        since, there is nothing more to take.

        Raises:
            NotPossibleError: it is on no machine of ours.
            NodeFailedError: the library was not in it, so that nothing is known of its syncs.
        """
        machine = self._machine(node)
        kept = machine / "disk"
        if not self._keeps:
            raise NotPossibleError(f"what {node} has synced is not kept in this drill")
        self.check_ready([node])
        if node in self._dark:
            return 0
        if number := self._read(node).failed:
            raise NodeFailedError(
                f"what {node} had synced could not be kept ({os.strerror(number)}), so that its"
                " power cannot be cut; make room, or raise its limits"
            )
        self._dark.add(node)
        count = taken(kept, self._stores[node])
        restore(kept, self._stores[node])
        shutil.rmtree(kept)
        (machine / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._set(node, "has_boot_id", 1)
        return count

    def new_disk(self, node: str) -> None:
        """Forget what was synced: the store is another one now."""
        if not self._why_not:
            self._dark.add(node)
            shutil.rmtree(self._machine(node) / "disk", ignore_errors=True)

    def set_clock(self, node: str, ahead_seconds: float) -> None:
        """Let the wall clock of a node be that much ahead, or behind if it is below 0."""
        self._set(node, "clock_ahead_ns", round(ahead_seconds * _NS))

    def slow_syncs(self, node: str, seconds: float) -> None:
        """Let each sync of a node take that much longer."""
        self._set(node, "sync_delay_ns", round(seconds * _NS))

    def lie_about_syncs(self, node: str) -> None:
        """Let syncs of a node be answered, and nothing be kept by them."""
        self._set(node, "lies", 1)

    def _machine(self, node: str) -> Path:
        if self._why_not:
            raise NotPossibleError(f"no machine for {node}: {self._why_not}")
        machine = self._directory / node
        control = machine / "control"
        if not control.exists():
            machine.mkdir(parents=True, exist_ok=True)
            control.write_bytes(bytes(_NUMBERS.size))
            self._write(node, "keeps", int(self._keeps))
        return machine

    def _read(self, node: str) -> _Control:
        numbers = _NUMBERS.unpack((self._machine(node) / "control").read_bytes())
        return _Control(**dict(zip(_FIELDS, numbers, strict=True)))

    def _set(self, node: str, field: str, value: int) -> None:
        self.check_ready([node])
        self._write(node, field, value)

    def _write(self, node: str, field: str, value: int) -> None:
        descriptor = os.open(self._machine(node) / "control", os.O_WRONLY)
        try:
            os.pwrite(descriptor, _NUMBER.pack(value), _FIELDS.index(field) * _NUMBER.size)
        finally:
            os.close(descriptor)


def machines(directory: Path, stores: Mapping[str, Path], *, keeps: bool) -> Machines:
    """Return machines for these nodes, whose library is compiled now; or say why there are none.

    `keeps`: power may be cut.
    """
    return Machines(directory, stores, _compiled(directory), keeps=keeps)


def _compiled(directory: Path) -> str:
    """Compile the library; return why it cannot be done, or ""."""
    if not sys.platform.startswith("linux"):
        return "what is preloaded into nodes is for Linux"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "there is no C compiler here (cc)"
    if set(str(directory)) & set(" :\t\n"):
        return f"{directory} has a space or a colon, with which nothing can be preloaded"
    directory.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(directory / LIBRARY_NAME)]
    try:
        done = subprocess.run(
            [*command, str(SOURCE), "-ldl", "-lpthread"],
            check=False,
            capture_output=True,
            timeout=COMPILE_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler}: {error}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{compiler}: {(lines or ['failed'])[-1]}" if done.returncode else ""
