"""What an operator does with `tandem log repair --from`: a stopped node gets bytes of another one.

What is to be copied is known here, so nothing is searched for; what copies is the real thing.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from node.simulated.disk import SimulatedDisk
from store.log_from_copy import HealFile, HealRange, HealRequest, heal_log
from store.machine.errors import StoreError
from tandem.wire.crc import raw_crc32
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.rot import fingerprint_of, fingerprint_path
from tests.sim.engine.whole_disk import Rot, is_healed

COPY_DIRECTORY: Final = "/mnt/copy"
"""Where the other node's files can be reached from this machine."""


def repair_log(node: SimulatedNode, others: Iterable[SimulatedNode]) -> int:
    """Heal what has rotted of a stopped node with the files of others; return how many were.

    While its disk is full, or fails, it cannot be: somebody tries again.
    """
    assert not node.is_up
    count = 0
    for rot in [rot for rot in node.rots if not is_healed(rot, node.disk)]:
        source = next((other for other in others if _has_it_whole(other, rot)), None)
        if source is not None:
            with suppress(StoreError, OSError):
                _heal(node, rot, source)
                count += 1
    return count


def _has_it_whole(other: SimulatedNode, rot: Rot) -> bool:
    return other.name != rot.node and other.disk.read(_path(other, rot)) == rot.before


def _path(node: SimulatedNode, rot: Rot) -> str:
    return f"{node.directory}/commitlog/{rot.path.rpartition('/')[2]}"


def _heal(node: SimulatedNode, rot: Rot, source: SimulatedNode) -> None:
    disk, size = node.disk, len(rot.before)
    copy = f"{COPY_DIRECTORY}/{source.name}/{rot.path.rpartition('/')[2]}"
    disk.replace(copy, source.disk.read(_path(source, rot)) or b"")
    found = fingerprint_of(node, rot.start)
    if found is not None and found.differing(rot.start, rot.before):
        # It was taken when a byte had changed that no CRC covers. `log repair` refuses that: then
        # somebody copies the file by hand, and the fingerprint goes with it.
        disk.remove(fingerprint_path(node, rot.start))
    there = disk.read(rot.path) or b""
    all_of_it = HealRange(rot.start, rot.start + size, raw_crc32(rot.before), rot.kind)
    heal_log(
        HealRequest(
            directory=node.directory,
            side_directory=f"{node.directory}/repaired",
            file_bytes=size,
            files=(
                HealFile(
                    offset=rot.start,
                    path=rot.path,
                    source=copy,
                    is_missing=not disk.exists(rot.path),
                    size_before=len(there),
                    ranges=(all_of_it,),
                ),
            ),
        ),
        disk,
        partial(_put_over, disk),
    )


def _put_over(disk: SimulatedDisk, path: str, new_path: str) -> None:
    disk.remove(new_path)
    disk.rename(path, new_path)
