"""Units of an archive as a manifest has them, without files."""

from typing import Any

import msgspec

from tandem.spark.archive.manifest import DataFilePart, QueueRange, Unit, UnitState


def a_part(first: int = 0, end: int = 10, topic: str = "orders") -> DataFilePart:
    """A file of one queue, with a row for each of these offsets."""
    queues = (QueueRange(0, first, end, end - first),)
    return DataFilePart("data/x", topic, "2026-01-02", end - first, 1, "", 5, 0, 9, queues)


def a_unit(first: int, end: int, *files: DataFilePart, **changes: Any) -> Unit:  # noqa: ANN401
    """What there is of the log between two places, and what is changed of that."""
    rows = sum(file.rows for file in files)
    state = UnitState.VERIFIED
    closes_file = True
    unit = Unit(
        "broker-a", first, end, f"{first:020d}", closes_file, 0, rows, 0, 0, state, 1, 2, files
    )
    return msgspec.structs.replace(unit, **changes)
