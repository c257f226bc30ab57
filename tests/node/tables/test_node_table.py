"""A new replicated table is one file, `tests/node/tables/quotas.py`, and one line, `REGISTERED`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import (
    JOURNAL_FORMAT,
    GroupTables,
    JournalFormat,
    JournalFormatError,
    encode_journal_record,
)
from node.tables.journal.journal_tables import JournalTables, SavedTables
from node.tables.node_table import PartTable, Replicated, TableFiles
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.replicated_tables import REPLICATED_TABLES
from store import MessageStore
from store.machine.errors import StoreError, TableFileError
from tests.node.doubles import BROKER, NOW_MS, FakeReplication, open_store
from tests.node.tables.quotas import QuotasChanged, QuotasPart

REGISTERED = (*REPLICATED_TABLES, Replicated(QuotasPart))
FORM = JournalFormat(REGISTERED)
CHANGE = QuotasChanged({"g": 5, "h": 6})


class Node:
    """One node of a fenced group, with the table."""

    def __init__(
        self, disk: SimulatedDisk | None = None, registered: Sequence[Replicated] = REGISTERED
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.store: MessageStore = open_store(self.disk, is_slave=True, is_fenced=True)
        self.tables = JournalTables(
            SavedTables(self.disk, "s", lambda: NOW_MS, registered=registered),
            self.store,
            FakeReplication(),
            born_host=BROKER.packed,
            wall_clock_ms=lambda: NOW_MS,
        )

    def open(self) -> None:
        self.store.become_master()
        self.store.confirm(self.store.max_physical_offset)
        self.tables.open([])
        self.confirm()

    def confirm(self) -> None:
        self.store.announce()
        self.store.confirm(self.store.max_physical_offset)
        self.tables.journal.catch_up()

    @property
    def confirmed(self) -> dict[str, int]:
        return self.tables.journal.applier.tables.of(QuotasPart).quotas

    @property
    def shown(self) -> dict[str, int]:
        return self.tables.shown.part_table(QuotasPart).part.quotas

    def copy_to(self, other: Node) -> None:
        at = other.store.max_physical_offset
        while data := bytes(self.store.read_log(at, 1 << 20)):
            other.store.append_data(at, data)
            at += len(data)
        while other.store.reput_service.is_behind:
            other.store.reput_service.dispatch_some()
        other.store.confirm(self.store.confirm_offset)
        other.tables.journal.catch_up()


async def test_a_change_is_journaled_and_shown_by_master_and_follower() -> None:
    master, follower = Node(), Node()
    master.open()
    master.tables.change(CHANGE)
    assert (master.shown, master.confirmed) == (CHANGE.quotas, {})
    master.confirm()
    master.tables.change(QuotasChanged({"h": 0}))
    master.confirm()
    master.copy_to(follower)
    for node in (master, follower):
        assert node.shown == node.confirmed == {"g": 5}


async def test_it_is_in_the_snapshot_of_the_next_master() -> None:
    """Also in several parts, and for a node that has nothing but the snapshot."""
    master, follower = Node(), Node()
    master.open()
    quotas = {f"g{number}": number + 1 for number in range(100)}
    master.tables.change(QuotasChanged(quotas))
    master.confirm()
    parts = master.tables.journal.applier.tables.snapshot(600)
    assert len(parts) > 2
    from_parts = GroupTables(FORM, [QuotasPart({"old": 1})])
    for part in parts:
        body = encode_journal_record(part)
        assert len(body) <= 600
        from_parts.apply(FORM.decode_record(body))
    assert from_parts.of(QuotasPart).quotas == quotas
    writer = master.tables.journal.writer
    assert writer is not None
    writer.write_snapshot()
    master.confirm()
    master.copy_to(follower)
    assert follower.shown == master.shown == quotas


async def test_it_is_restored_from_the_journals_file_and_then_from_the_log() -> None:
    node = Node()
    node.open()
    node.tables.change(CHANGE)
    node.confirm()
    node.tables.save()
    node.tables.change(QuotasChanged({"g": 7}))
    node.confirm()
    node.store.close()
    again = Node(node.disk)
    assert again.shown == again.confirmed == CHANGE.quotas
    again.confirm()
    assert again.shown == again.confirmed == {"g": 7, "h": 6}


async def test_a_copy_for_other_programs_is_what_a_node_without_journal_begins_with() -> None:
    node = Node()
    node.open()
    node.tables.change(CHANGE)
    node.confirm()
    node.tables.save()
    node.store.close()
    node.disk.remove("s/config/groupJournal.json")
    assert Node(node.disk).shown == CHANGE.quotas


async def test_a_copy_whose_save_was_stopped_midway_is_saved_again() -> None:
    node = Node()
    node.open()
    node.tables.change(CHANGE)
    node.confirm()
    steps = iter(node.tables.shown.part_table(QuotasPart).save_in_steps())
    next(steps)
    del steps
    node.tables.save()
    node.store.close()
    node.disk.remove("s/config/groupJournal.json")
    assert Node(node.disk).shown == CHANGE.quotas


def test_plain_files_have_it_before_it_shows() -> None:
    disk = SimulatedDisk()
    tables = PlainTables(PlainFiles(disk, "s", lambda: NOW_MS, registered=REGISTERED))
    tables.change(CHANGE)
    again = PlainTables(PlainFiles(disk, "s", lambda: NOW_MS, registered=REGISTERED))
    assert again.shown.part_table(QuotasPart).part.quotas == CHANGE.quotas
    disk.writes_fail = True
    with pytest.raises(RequestError):
        tables.change(QuotasChanged({"g": 9}))
    assert tables.shown.part_table(QuotasPart).part.quotas == CHANGE.quotas


def test_a_damaged_file_of_it_is_an_error() -> None:
    disk = SimulatedDisk()
    disk.replace("s/config/quotas.json", b'{"quotas":')
    with pytest.raises(TableFileError):
        PlainTables(PlainFiles(disk, "s", lambda: NOW_MS, registered=REGISTERED))


async def test_nodes_of_an_older_version_stop_at_it_and_not_before() -> None:
    """As long as nothing is in the table, they take everything."""
    master, older = Node(), Node(registered=REPLICATED_TABLES)
    master.open()
    master.copy_to(older)
    master.tables.change(CHANGE)
    master.confirm()
    with pytest.raises(JournalFormatError):
        master.copy_to(older)
    snapshot = encode_journal_record(master.tables.journal.applier.tables.snapshot(5000)[0])
    with pytest.raises(JournalFormatError):
        JOURNAL_FORMAT.decode_record(snapshot)


async def test_an_older_version_that_is_started_again_does_not_forget_it_in_silence() -> None:
    node = Node()
    node.open()
    node.tables.change(CHANGE)
    node.confirm()
    node.tables.save()
    node.store.close()
    older = Node(node.disk, REPLICATED_TABLES)
    with pytest.raises(JournalFormatError):
        older.confirm()


def test_records_are_written_as_part_of_a_newer_format() -> None:
    assert FORM.version == max(each.version for each in FORM.parts) == 6
    empty = JournalFile(SimulatedDisk(), "s", FORM)
    empty.save(0, GroupTables(FORM))
    assert b"quotas" not in encode_journal_record(GroupTables(FORM).snapshot(5000)[0])


def test_a_copy_is_written_when_there_is_something_new_and_again_after_a_full_disk() -> None:
    disk = SimulatedDisk()
    table = PartTable(QuotasPart, TableFiles(disk, "s", lambda: NOW_MS, is_copy=True))
    assert list(table.save_in_steps()) == []
    assert disk.read("s/config/quotas.json") is None
    table.show(QuotasPart({"g": 1}), None)
    table.show(QuotasPart(), [CHANGE])
    disk.writes_fail = True
    with pytest.raises(StoreError):
        list(table.save_in_steps())
    disk.writes_fail = False
    list(table.save_in_steps())
    again = PartTable(QuotasPart, TableFiles(disk, "s", lambda: NOW_MS))
    assert again.part.quotas == again.as_part().quotas == {"g": 5, "h": 6}
