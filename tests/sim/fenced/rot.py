"""Disks that rot: full files of a log, under a running node or a stopped one.

    flip          one bit, anywhere: header, body, properties, blank
    zero          512 bytes come back as zeros
    misdirect     512 bytes of another place of the same file, a write that went astray
    lose          the file is gone; a process that runs has it mapped yet
    shorten       its end is gone; only of a stopped node, others would end in SIGBUS

What rots is below where every node's log ends. It need not be confirmed: where all members have to
confirm, it may be what the last of them has to have to start. Where the page cache has the bytes, a
running process goes on seeing them: half of the time the disk alone is hurt, and the process finds
out when it asks the disk.

Whoever judges a run reads through `WholeDisk`.
"""

import random
from typing import Final

from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.whole_disk import Rot

SECTOR_BYTES: Final = 512

OF_RUNNING: Final = ("flip", "flip", "zero", "misdirect", "lose")
OF_STOPPED: Final = (*OF_RUNNING, "shorten")


def rot_log(
    node: SimulatedNode, kind: str, below: int, chance: random.Random, share: tuple[int, int]
) -> Rot | None:
    """Hurt one full file of a node's log that ends at `below` or before; None if there is none.

    `kind` is one of the module docstring, or `any`. With a `share` of (1, 3) it is the second file
    of three, or the fifth, and so on: what rots elsewhere by another share is whole here.
    """
    if kind == "any":
        kind = chance.choice(OF_RUNNING if node.is_up else OF_STOPPED)
    if kind == "shorten" and node.is_up:
        return None
    directory = f"{node.directory}/commitlog"
    files = [
        f"{directory}/{name}"
        for name, size in node.disk.list_files(directory)
        if name.isdigit() and int(name) + size <= below and int(name) // size % share[1] == share[0]
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
    if kind == "lose":
        node.disk.remove(path)
    elif kind == "shorten":
        node.disk.remove(path)
        node.disk.replace(path, after)
    else:
        file.rot(after)
        if not node.is_up or chance.random() < 0.5:
            file.buffer[: len(after)] = after
            file.given_up.clear()
    return Rot(node.name, kind, path, before, f"{kind} {path} at {at} of {node.name}")


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
