"""The feature level in a group's journal, and what the level lets a master write."""

import pytest
from trio.testing import MockClock

from node.errors import RequestError
from node.tables.journal.journal_records import (
    GroupTables,
    JournalFormat,
    JournalFormatError,
    encode_journal_record,
)
from node.tables.replicated_level import LEVEL_VERSION, LevelPart, level_raised
from node.tables.replicated_modes import ModesChanged
from node.tables.replicated_tables import tables_of
from tandem.wire.feature_level import LEVEL_MAX, LEVEL_MIN, feature_level, needed_for
from tests.node.tables.journal.journal_world import Node


async def test_a_master_writes_the_level_once_and_nothing_at_the_lowest() -> None:
    node = Node()
    node.open_as_master()
    node.confirm()
    assert node.journal.applier.tables.of(LevelPart).level == 0
    assert not [each for each in node.records() if type(each) is LevelPart.record]
    node.level = LEVEL_MAX
    for _ in range(2):
        node.writer.write_regularly(0.0)
        node.confirm()
    raised = [record for record in node.records() if type(record) is LevelPart.record]
    assert raised == [level_raised(LEVEL_MAX)]
    assert node.journal.applier.tables.of(LevelPart).level == LEVEL_MAX


async def test_the_next_master_finds_it_there() -> None:
    node = Node()
    node.level = LEVEL_MAX
    node.open_as_master()
    node.confirm()
    part = node.journal.applier.tables.of(LevelPart)
    assert part.level == LEVEL_MAX
    assert node.writer.opening_records() == []
    snapshot = node.journal.applier.tables.snapshot(5_000)
    other = GroupTables()
    for each in snapshot:
        other.apply(each)
    assert other.of(LevelPart).level == LEVEL_MAX


def test_a_version_that_does_not_know_it_stops_at_its_record_and_shows_what_it_needs() -> None:
    older = JournalFormat(tables_of(LEVEL_MIN))
    assert older.version == feature_level(LEVEL_MIN).journal
    with pytest.raises(JournalFormatError) as caught:
        older.decode_record(encode_journal_record(level_raised(LEVEL_MAX)))
    assert needed_for(LEVEL_MAX)[:40] in str(caught.value)
    tables = GroupTables()
    older.decode_record(encode_journal_record(tables.snapshot(5_000)[0]))
    tables.apply(level_raised(LEVEL_MAX))
    with pytest.raises(JournalFormatError):
        older.decode_record(encode_journal_record(tables.snapshot(5_000)[0]))


async def test_what_older_members_could_not_read_is_not_written() -> None:
    node = Node()
    node.open_as_master()
    written = node.journal.applier.queue_end
    with pytest.raises(RequestError) as caught:
        node.journal.change(level_raised(LEVEL_MAX))
    assert f"feature level {LEVEL_MAX}" in caught.value.remark
    assert "tandem ha raise-features" in caught.value.remark
    assert node.journal.applier.queue_end == written
    node.journal.change(ModesChanged({}))
    node.level = LEVEL_MAX
    node.journal.change(level_raised(LEVEL_MAX))


async def test_a_level_is_never_taken_back(autojump_clock: MockClock) -> None:
    part = LevelPart()
    part.apply(level_raised(LEVEL_MAX))
    part.apply(level_raised(LEVEL_MIN))
    part.add({"feature_level": None})
    part.add({"feature_level": 1})
    copy = part.copy()
    copy.apply(level_raised(LEVEL_MAX + 1))
    assert part.content() == {"feature_level": LEVEL_MAX}
    assert level_raised(LEVEL_MAX).version == LEVEL_VERSION == LevelPart.version
