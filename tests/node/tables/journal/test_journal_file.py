import logging
from typing import Any

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from node.tables.journal.journal_file import ENTRIES_PER_STEP, JournalFile
from node.tables.journal.journal_records import JOURNAL_FORMAT, GroupTables
from node.tables.replicated_deliveries import DelayPart
from node.tables.replicated_groups import GroupsPart
from node.tables.replicated_offsets import OffsetsPart
from node.tables.replicated_topics import TopicsPart
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.tables.journal.journal_world import tables_of
from tests.support.logged import logged

PATH = "s/config/groupJournal.json"


def saved_tables() -> GroupTables:
    return tables_of(
        TopicsPart({"T": TopicConfig("T")}), OffsetsPart({"T@g": {0: 5}}), DelayPart({3: 9})
    )


def loaded(disk: SimulatedDisk) -> tuple[int, dict[str, object]] | None:
    state = JournalFile(disk, "s").load()
    return None if state is None else (state.position, state.tables.content())


SAVED = (7, saved_tables().content())


def test_what_was_saved_is_loaded_and_a_new_node_has_nothing() -> None:
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    assert file.load() is None
    file.save(7, saved_tables())
    assert loaded(disk) == SAVED


def test_a_damaged_state_file_is_said_and_read_from_the_log_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    JournalFile(disk, "s").save(7, saved_tables())
    whole = disk.read(PATH) or b""
    for changed in (b"", b"{", whole.replace(b'"0":5', b'"0":4')):
        disk.replace(PATH, changed)
        with caplog.at_level(logging.WARNING):
            assert JournalFile(disk, "s").load() is None
        assert len(logged(caplog, "node.tables.journal.journal_file")) == 1
        caplog.clear()


def test_a_file_without_a_checksum_is_read() -> None:
    disk = SimulatedDisk()
    JournalFile(disk, "s").save(7, saved_tables())
    whole = disk.read(PATH) or b""
    disk.replace(PATH, whole.splitlines()[0])
    assert loaded(disk) == SAVED


def test_a_large_state_is_encoded_in_steps_and_is_the_same() -> None:
    count = 5 * ENTRIES_PER_STEP
    tables = tables_of(
        TopicsPart({f"T{number}": TopicConfig(f"T{number}") for number in range(count)}),
        OffsetsPart({f"T@g{number}": {0: number, 3: 5} for number in range(count)}),
        DelayPart({3: 9}),
        GroupsPart(
            {f"g{number}": SubscriptionGroupConfig(f"g{number}") for number in range(count)},
            {"g1": {"T": 1}},
        ),
    )
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    steps = 0
    for _ in file.save_in_steps(7, tables):
        assert disk.read(PATH) is None, "nothing is changed before the last step"
        steps += 1
    assert steps > 15, "no piece has more than a fifth of a table"
    assert loaded(disk) == (7, tables.content())
    whole = (disk.read(PATH) or b"").splitlines()[0]
    content: dict[str, Any] = tables.content()
    state = JOURNAL_FORMAT.state_type(7, **content)
    assert whole == msgspec.json.encode(state), "as before there were steps"


def test_the_file_is_byte_for_byte_what_older_versions_wrote() -> None:
    disk = SimulatedDisk()
    JournalFile(disk, "s").save(0, GroupTables())
    assert disk.read(PATH) == (
        b'{"position":0,"topics":[],"offsets":{},"delay":{},"groups":[],"forbidden":{},'
        b'"timers":null,"delay_at":0,"timers_at":0}\n{"crc32":"7f27922c"}\n'
    )


def test_a_table_that_is_not_known_is_not_left_out_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log is read again, and stops where the table was changed."""
    disk = SimulatedDisk()
    text = b'{"position":7,"topics":[],"offsets":{},"delay":{},"quotas":{"a":1}}\n'
    disk.replace(PATH, text)
    assert loaded(disk) is None
    assert len(logged(caplog, "node.tables.journal.journal_file")) == 1


def test_what_is_kept_of_the_file_is_what_was_written_last() -> None:
    """Else a look at the disk would find it changed, and write what was kept before anew."""
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    file.save(7, saved_tables())
    assert loaded(disk) == SAVED
    file.save(8, saved_tables())
    kept = disk.kept.of(PATH)
    assert kept is not None
    assert kept.content == disk.read(PATH)
