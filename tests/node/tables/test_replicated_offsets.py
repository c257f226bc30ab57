"""Gathering is tested with a journal, in `tests/node/tables/journal/test_journal_writer.py`."""

from node.simulated.disk import SimulatedDisk
from node.tables.deleted import Deleted
from node.tables.node_table import TableFiles
from node.tables.replicated_offsets import OffsetsCommitted, OffsetsPart, OffsetsTable
from tests.node.doubles import NOW_MS


def table(*, is_copy: bool) -> OffsetsTable:
    return OffsetsTable(TableFiles(SimulatedDisk(), "s", lambda: NOW_MS, is_copy=is_copy))


def test_with_a_journal_an_offset_shows_once_it_is_confirmed() -> None:
    offsets = table(is_copy=True)
    offsets.take(OffsetsCommitted({"T@g": {0: 1}}))
    assert offsets.as_part().offsets == {}
    records = [OffsetsCommitted({"T@g": {0: 1}}), OffsetsCommitted({"T@g": {1: 2}, "U@g": {0: 3}})]
    offsets.show(OffsetsPart(), records)
    assert offsets.as_part().offsets == {"T@g": {0: 1, 1: 2}, "U@g": {0: 3}}
    offsets.show(OffsetsPart({"V@g": {0: 1}}), None)
    assert offsets.as_part().offsets == {"V@g": {0: 1}}


def test_without_a_journal_a_change_shows_at_once() -> None:
    offsets = table(is_copy=False)
    offsets.take(OffsetsCommitted({f"{topic}@{group}": {0: 1} for topic in "TU" for group in "gh"}))
    offsets.take(Deleted(topics=["T"], groups=["g"], offsets_of_groups=["h"]))
    assert offsets.as_part().offsets == {"U@g": {0: 1}}
