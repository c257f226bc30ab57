"""Machines for the pages of `docs/operations`: network namespaces with files of their own.

A machine has an address, and of its own /etc, /var/lib, /var/log, /run/services and a home. All
else is that of the machine which the tests run on. `systemctl` is `service_manager.py`, `ssh` goes
to another machine by its address, and `journalctl -u UNIT` shows what a service has said.
"""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.faults.namespaces import Lan, lan
from tests.support.page_blocks import Block, commands_of, read_page
from tests.support.page_output import differs
from tests.support.paths import ROOT
from tests.tandem.coordinator.real_etcd import find_etcd, find_etcdctl

ADDRESSES: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.9")
NAMES: Final = ("first", "second", "third", "fourth", "operator")
EACH: Final = NAMES[:3]

BLOCK_SECONDS_MAX: Final = 500.0
"""How long one block may take on a busy machine."""

OWN: Final = ("etc", "var/lib", "var/log", "run/services", "home")
"""Directories that a machine has for itself."""

_SYSTEMCTL: Final = Path(__file__).with_name("service_manager.py")


class Machines:
    """The machines of a rehearsal, and what is run on them."""

    def __init__(self, net: Lan, directory: Path) -> None:
        self._net = net
        self._directory = directory
        self._tools = directory / "tools"
        self._tools.mkdir(parents=True)
        for name in NAMES:
            self._make_files(name)
        self._make_tools()

    def play(self, page: Path) -> None:
        """Run the blocks of a page that name a machine, as they are written there."""
        for block in read_page(page):
            if "on" in block.marks:
                for name in EACH if block.marks["on"] == "each" else (block.marks["on"],):
                    self._play_block(block, name)

    def run(self, name: str, script: str) -> tuple[int, str]:
        """Run a script of bash on a machine; return its status, and what it has printed."""
        return self._run(name, script, f"a script on {name}")

    def services(self) -> Iterator[int]:
        """The processes of all services."""
        for file in self._directory.glob("*/run/services/*.pid"):
            with suppress(ValueError):
                yield int(file.read_text())

    def end(self) -> None:
        """End all that runs; nobody is asked."""
        for stopping in self._directory.glob("*/run/services/*.pid"):
            stopping.with_suffix(".stopping").touch()
        for pid in self.services():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _play_block(self, block: Block, name: str) -> None:
        place = f"{block.place} on {name}"
        exits = int(block.marks.get("exits", "0"))
        if block.language == "bash":
            status, printed = self._run(name, block.text, place)
            assert status == exits, f"{place}: exit status {status}\n{block.text}\n{printed}"
            return
        *others, last = commands_of(block)
        for command in (*others, last):
            wanted = exits if command is last else 0
            status, printed = self._run(name, command.line, place)
            assert status == wanted, f"{place}: exit status {status}\n{command.line}\n{printed}"
            if command.shown:
                difference = differs(command.shown, printed, frozenset(block.listed("varies")))
                assert not difference, f"{place}: {command.line}\n{difference}"

    def _run(self, name: str, script: str, place: str) -> tuple[int, str]:
        number = NAMES.index(name)
        own = self._directory / name
        shell = f"{mounts(own)} && cd /home && exec bash -ec {shlex.quote(script)}"
        output = self._directory / "output"
        with output.open("wb") as target:
            # A file and no pipe: a service that goes on has whatever its starter had.
            process = subprocess.Popen(
                self._net.command(number, "bash", "-c", shell),
                env=self._environment(number),
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(BLOCK_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = -1
        printed = output.read_text(errors="replace")
        assert status != -1, f"{place}: no end after {BLOCK_SECONDS_MAX:g} s\n{script}\n{printed}"
        return status, printed

    def _environment(self, number: int) -> dict[str, str]:
        return {
            "PATH": f"{self._tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": "/home",
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "TERM": "dumb",
            "NODE": f"broker-a-{number}",
            "ADDRESS": ADDRESSES[number],
            "EXAMPLES": str(ROOT / "examples"),
        }

    def _make_files(self, name: str) -> None:
        own = self._directory / name
        for path in OWN[1:]:
            (own / path).mkdir(parents=True)
        # Users that are made there are not made here.
        shutil.copytree("/etc", own / "etc", symlinks=True, ignore_dangling_symlinks=True)
        (own / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        Path("/run/services").mkdir(exist_ok=True)

    def _make_tools(self) -> None:
        for found in (find_etcd(), find_etcdctl()):
            (self._tools / found.name).symlink_to(found)
        self._write_tool("systemctl", f'exec {sys.executable} -P {_SYSTEMCTL} "$@"')
        self._write_tool("journalctl", 'cat "/var/log/$2.log"')
        cases = "\n".join(
            f"  *{address})"
            f" exec {shlex.join([sys.executable, '-P', __file__, str(self._directory)])}"
            f' {" ".join(self._net.command(number)[:4])} {name} {address} "$*" ;;'
            for number, (name, address) in enumerate(zip(NAMES, ADDRESSES, strict=True))
        )
        self._write_tool("ssh", f'to=$1; shift\ncase "$to" in\n{cases}\nesac\nexit 255')

    def _write_tool(self, name: str, text: str) -> None:
        file = self._tools / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)


def closed_parent() -> tuple[Path | None, str]:
    """Return the directory on the way to this Python that users may not enter, and what is next."""
    at = Path(sys.executable).resolve()
    for parent in reversed(at.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return parent, at.relative_to(parent).parts[0]
    return None, ""


def mounts(own: Path) -> str:
    """Return the commands that give a machine its own directories; on it only, as all mounts."""
    lines = [f"mount --bind {own / path} /{path}" for path in OWN]
    closed, child = closed_parent()
    if closed is not None:
        # Users of the machine run this Python, too.
        opened = own / "opened"
        lines += [
            f"mkdir -p -m 0755 {opened / child}",
            f"mount --bind {closed / child} {opened / child}",
            f"mount --rbind {opened} {closed}",
        ]
    return " && ".join(lines)


def go_to(directory: Path, netns: list[str], name: str, address: str, script: str) -> None:
    """What `ssh` does: become a script on another machine, with this one's input and output."""
    own = directory / name
    environment = os.environ | {
        "ADDRESS": address,
        "NODE": f"broker-a-{NAMES.index(name)}",
    }
    # Out of the directories of the machine that asks, which are mounted over these.
    hidden = " ".join(f"/{path}" for path in OWN)
    closed, _ = closed_parent()
    shell = (
        f"cd /; umount -l {hidden}; umount -Rl {closed or ''} 2>/dev/null;"
        f" {mounts(own)} && cd /home && exec bash -c {shlex.quote(script)}"
    )
    os.execvpe(netns[0], [*netns, "bash", "-c", shell], environment)


@contextmanager
def machines(directory: Path) -> Iterator[Machines]:
    """The machines of a rehearsal, as long as the block."""
    with lan(ADDRESSES) as net:
        made = Machines(net, directory)
        try:
            yield made
        finally:
            made.end()
            with suppress(OSError):  # another rehearsal may be there
                Path("/run/services").rmdir()


if __name__ == "__main__":
    go_to(Path(sys.argv[1]), sys.argv[2:6], *sys.argv[6:9])
