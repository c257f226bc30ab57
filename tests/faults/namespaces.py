"""Machines that are network namespaces: each with an address of its own, on one switch.

    machine 0      machine 1      machine 2
    10.0.0.1       10.0.0.2       10.0.0.3
        \\-------------- | --------------/
              a bridge in a namespace of its own

Nothing of it is seen by the machine that all of it runs on, so the addresses may be any. Needs
root, and Debian's iproute2.
"""

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

_PREFIX: Final = "tandem-"
_DIRECTORY: Final = Path("/run/netns")
_DEVICE: Final = "eth0"


class Lan:
    """Machines by number, from 0 on, and the cables between them and their switch."""

    def __init__(self) -> None:
        # The number of this process is in it: what a killed one has left can be told.
        self._name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(2)}"
        self._switch = f"{self._name}-switch"
        self._names: list[str] = []

    def command(self, machine: int, *words: str) -> list[str]:
        """A command line that runs on a machine; its process has the id that Popen says."""
        return ["ip", "netns", "exec", self._names[machine], *words]

    def cut(self, machine: int) -> None:
        """Pull the cable: nothing leaves the machine or reaches it, and nobody hears of it."""
        _ip("-n", self._switch, "link", "set", f"port{machine}", "nomaster", "down")

    def mend(self, machine: int) -> None:
        """Put the cable back."""
        _ip("-n", self._switch, "link", "set", f"port{machine}", "master", "bridge", "up")

    def build(self, addresses: Sequence[str]) -> None:
        """Make the machines."""
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for number, address in enumerate(addresses):
            name = f"{self._name}-{number}"
            self._names.append(name)
            _ip("netns", "add", name)
            _ip(
                *("link", "add", _DEVICE, "netns", name, "type", "veth"),
                *("peer", "name", f"port{number}", "netns", self._switch),
            )
            _ip("-n", name, "address", "add", f"{address}/24", "dev", _DEVICE)
            for device in ("lo", _DEVICE):
                _ip("-n", name, "link", "set", device, "up")
            self.mend(number)

    def remove(self) -> None:
        """Take all of it away; what runs there has ended."""
        for name in (*self._names, self._switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def lan(addresses: Sequence[str]) -> Iterator[Lan]:
    """Machines that are there as long as the block; skips where there can be none."""
    _skip_without()
    _remove_left()
    made = Lan()
    try:
        made.build(addresses)
        yield made
    finally:
        made.remove()


def _skip_without() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root alone")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`: apt-get install iproute2")
    tried = f"{_PREFIX}{os.getpid()}-tried"
    done = subprocess.run(["ip", "netns", "add", tried], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {done.stderr.decode().strip()}")
    _ip("netns", "delete", tried)


def _remove_left() -> None:
    """Take away what a run has left that was killed."""
    for name in [each.name for each in _DIRECTORY.iterdir()]:
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and not Path(f"/proc/{pid}").exists():
            _end_processes(name)
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _end_processes(name: str) -> None:
    found = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True)
    for pid in found.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)
