"""Whether the compaction logs of a stopped store are sound: pairs, units, and the record of each.

    compaction/compactionLog/<topic>/<queueId>/<20 digits>   records
    compaction/compactionCq/<topic>/<queueId>/<20 digits>    units, up to the first that is none

Each unit names a sound record of its number that follows the one before. What follows the last unit
of the last pair is nothing: the next start takes it from the queue again. Nothing is compared with
the commit log, which may not have these messages any more.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from tandem.wire.record_rule import look, record_fault
from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT_SIZE, offset_named
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tandem.log.findings import FindingList

_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20
_SWAP: Final = "compacting/swap.json"


def check_compaction(root: Path, found: FindingList) -> None:
    """Note what is wrong with the compaction logs of the store in `root`."""
    logs, units = root / "compaction/compactionLog", root / "compaction/compactionCq"
    queues = {
        f"{topic.name}/{queue.name}"
        for tree in (logs, units)
        for topic in _directories(tree)
        for queue in _directories(topic)
    }
    for queue in sorted(queues):
        if (logs / queue / _SWAP).exists():
            what = "compacted files were to take the place of others"
            found.add("compaction-swap", str(logs / queue / _SWAP), -1, what)
            continue
        _check_queue(logs / queue, units / queue, found)


def _directories(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from sorted(each for each in directory.iterdir() if each.is_dir())


def _names(directory: Path, found: FindingList) -> set[str]:
    files = [each for each in directory.iterdir() if each.is_file()] if directory.is_dir() else []
    for file in files:
        if offset_named(file.name) is None:
            found.add("compaction-pair", str(file), -1, "no name of such a file")
    return {file.name for file in files if offset_named(file.name) is not None}


def _check_queue(logs: Path, units: Path, found: FindingList) -> None:
    names, other_names = _names(logs, found), _names(units, found)
    last = max(names | other_names, default="")
    for name in sorted(names ^ other_names):
        # A stop while the last pair is made leaves half of it.
        if name != last:
            directory = units if name in names else logs
            found.add("compaction-pair", str(directory / name), -1, "missing")
    number = -1
    for name in sorted(names & other_names):
        number = _check_pair(logs / name, units / name, number, found)


def _check_pair(log: Path, cq: Path, number: int, found: FindingList) -> int:
    """Check a pair whose numbers come after `number`; return its last one."""
    data = cq.read_bytes()
    end = len(data) // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE
    table = np.frombuffer(data[:end], BATCH_CQ_UNIT_TYPE)
    base = place = int(log.name)
    if not log.stat().st_size:
        return number
    with (
        log.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as records,
    ):
        for index, unit in enumerate(table):
            offset, size, queue_offset = (
                int(unit[name]) for name in ("offset", "size", "base_offset")
            )
            if offset < 0 or size <= 0 or int(unit["batch_size"]) <= 0:
                break
            position = index * BATCH_CQ_STORE_UNIT_SIZE
            if offset != place or queue_offset <= number:
                what = f"message {queue_offset} at {offset}, expected at {place} after {number}"
                found.add("compaction-unit", str(cq), position, what)
                break
            fault = _fault(records, base, offset - base, size, queue_offset)
            if fault is not None:
                found.add("compaction-record", str(log), offset - base, fault)
            number = queue_offset
            place = offset + size
    return number


def _fault(
    records: mmap.mmap, base: int, position: int, size: int, queue_offset: int
) -> str | None:
    stop, reason, found = look(records, position, min(position + size, len(records)))
    if stop is not None or found != size:
        return f"no record of {size} bytes begins here {reason}".rstrip()
    (said,) = _QUEUE_OFFSET.unpack_from(records, position + _QUEUE_OFFSET_AT)
    if said != queue_offset:
        return f"the record is number {said}, its unit says {queue_offset}"
    return record_fault(records, base, position)
