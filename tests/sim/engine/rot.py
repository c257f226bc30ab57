"""Disks that rot: full files of a log, under a running node or a stopped one.

    flip          one bit, anywhere: header, body, properties, blank
    zero          512 bytes come back as zeros
    misdirect     512 bytes of another place of the same file, a write that went astray
    lose          the file is gone; a process that runs has it mapped yet
    lose-first    the same, of the first file of the log
    shorten       its end is gone; only of a stopped node, others would end in SIGBUS

What rots is below where every node's log ends. It need not be confirmed: where all members have to
confirm, it may be what the last of them has to have to start. Where the page cache has the bytes, a
running process goes on seeing them: where the disk alone is hurt, the process finds out when it
asks the disk.

Whoever judges a run reads through `WholeDisk`.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from store.machine.checked_file import read_checked_json
from tandem.wire.fingerprint import DIRECTORY as FINGERPRINTS
from tandem.wire.fingerprint import Fingerprint
from tandem.wire.untrusted import UnreadableError
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.whole_disk import Rot, windows_of

SECTOR_BYTES: Final = 512

IN_PLACE: Final = ("flip", "zero", "misdirect")
"""After these the file is there, as long as it was."""

OF_RUNNING: Final = ("flip", *IN_PLACE, "lose")
OF_STOPPED: Final = (*OF_RUNNING, "shorten")


def own_share(number: int, count: int) -> Callable[[int, int], bool]:
    """Return which files rot of one node of so many, by start and size: no other has those.

    What rots there is whole elsewhere.
    """
    return lambda start, size: start // size % count == number


def rot_log(
    node: SimulatedNode,
    kind: str,
    below: int,
    chance: random.Random,
    may_rot: Callable[[int, int], bool],
    memory_chance: float = 0.5,
) -> Rot | None:
    """Hurt one full file of a node's log that ends at `below` or before; None if there is none.

    `kind` is one of the module docstring, or `any`. `may_rot` is asked about each file, by its
    start and its size. A running process has it so in memory, too, with `memory_chance`.
    """
    if kind == "any":
        kind = chance.choice(OF_RUNNING if node.is_up else OF_STOPPED)
    if kind == "shorten" and node.is_up:
        return None
    first_only = kind == "lose-first"
    directory = f"{node.directory}/commitlog"
    files = [
        f"{directory}/{name}"
        for name, size in node.disk.list_files(directory)
        if name.isdigit() and int(name) + size <= below and may_rot(int(name), size)
        if not (first_only and int(name))
    ]
    hurt = {rot.path for rot in node.rots}
    files = [path for path in files if path not in hurt]
    if not files:
        return None
    path = chance.choice(files)
    file = node.disk.open(path)
    before = file.content
    at, after = _hurt(before, kind, chance)
    if after == before:
        return None
    if kind in ("lose", "lose-first"):
        node.disk.remove(path)
    elif kind == "shorten":
        node.disk.remove(path)
        node.disk.replace(path, after)
    else:
        file.rot(after)
        if not node.is_up or chance.random() < memory_chance:
            file.buffer[: len(after)] = after
            file.given_up.clear()
    is_there = len(after) == len(before)
    first, last, windows = windows_of(before, after) if is_there else (at, len(before) - 1, ())
    where = f"{kind} {path} at {at} of {node.name}"
    return Rot(node.name, kind, path, before, where, first, last, windows)


def fingerprint_path(node: SimulatedNode, start: int) -> str:
    """Return where a node has the fingerprint of the file of its log that begins at `start`."""
    return f"{node.directory}/{FINGERPRINTS}/{start:020d}"


def fingerprint_of(node: SimulatedNode, start: int) -> Fingerprint | None:
    """Return that fingerprint; None if there is none to go by."""
    with suppress(UnreadableError):  # it was killed while it wrote it
        return read_checked_json(node.disk, fingerprint_path(node, start), Fingerprint)
    return None


def _hurt(before: bytes, kind: str, chance: random.Random) -> tuple[int, bytes]:
    at = chance.randrange(len(before))
    if kind == "flip":
        return at, before[:at] + bytes([before[at] ^ 1 << chance.randrange(8)]) + before[at + 1 :]
    at -= at % SECTOR_BYTES
    end = at + SECTOR_BYTES
    match kind:
        case "zero":
            return at, before[:at] + bytes(len(before[at:end])) + before[end:]
        case "misdirect":
            other = chance.randrange(0, len(before), SECTOR_BYTES)
            strayed = before[other : other + SECTOR_BYTES][: len(before[at:end])]
            return at, before[:at] + strayed + before[at + len(strayed) :]
        case "shorten":
            return at, before[:at]
        case _:
            return 0, b""
