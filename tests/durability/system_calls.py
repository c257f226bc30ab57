"""System calls of real processes, as strace(1) has written them down."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

SYNCS: Final = frozenset({"fsync", "fdatasync"})
RENAMES: Final = frozenset({"rename", "renameat", "renameat2", "linkat"})
SENDS: Final = frozenset({"sendto", "sendmsg"})
RECEIPTS: Final = frozenset({"recvfrom", "recvmsg"})
TRACED: Final = ",".join(sorted({*SYNCS, *RENAMES, *SENDS, *RECEIPTS}))

_LINE: Final = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)")
_DESCRIPTOR: Final = re.compile(r"\d+<([^>]*->[^>]*|[^>]*)>")
_NAME: Final = re.compile(r'"([^"]*)"')
UNFINISHED: Final = "<unfinished ...>"
_FAILED: Final = re.compile(r"\)\s+= (-1 |\?$)")


def why_no_tracing() -> str:
    """Return why calls cannot be watched here; empty if they can."""
    if shutil.which("strace") is None:
        return "there is no strace"
    done = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-q", "-o", "/dev/null", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else ""


def under_strace(command: Iterable[str], output: Path) -> list[str]:
    """Return the command whose process, and all that it starts, are watched.

    The watcher is a process beside it, and ends with the last that it watches.
    """
    watcher = ["strace", "-D", "-f", "--seccomp-bpf", "-q", "-yy", "-s", "600"]
    return [*watcher, "-e", "signal=none", "-e", f"trace={TRACED}", "-o", str(output), *command]


class Call(msgspec.Struct, frozen=True):
    """One call: who made it, what strace says of it, and between which lines it was under way."""

    thread: int
    name: str
    text: str
    begun: int
    ended: int

    @property
    def target(self) -> str:
        """The file or the socket that its first descriptor is of."""
        found = _DESCRIPTOR.match(self.text)
        return found.group(1) if found else ""

    @property
    def names(self) -> list[str]:
        """The names it was given: of a rename, the old one and the new one."""
        return _NAME.findall(self.text)

    def is_within(self, after: int, before: int) -> bool:
        """Whether it began after one line and had ended before another."""
        return after < self.begun and self.ended < before


def read_calls(path: Path) -> list[Call]:
    """Return all calls that ended well, in the order in which they ended."""
    return list(_calls(path.read_text(encoding="utf-8", errors="replace").splitlines()))


def _calls(lines: list[str]) -> Iterator[Call]:
    begun: dict[int, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, name, text = int(found.group(1)), found.group(2), found.group(3)
        if text.endswith(UNFINISHED):
            begun[thread] = number, text.removesuffix(UNFINISHED)
            continue
        start, head = begun.pop(thread, (number, "")) if "resumed>" in line else (number, "")
        if not _FAILED.search(text):
            yield Call(thread, name, head + text, start, number)
