from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from node.tables.journal.journal_file import ENTRIES_PER_STEP, JournalFile, JournalState, _in_pieces
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.support.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    import pytest

PATH = "s/config/groupJournal.json"
STATE = JournalState(7, [TopicConfig(topic_name="T")], {"T@g": {0: 5}}, {3: 9})


def test_what_was_saved_is_loaded_and_a_new_node_has_nothing() -> None:
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    assert file.load() is None
    file.save(STATE)
    assert JournalFile(disk, "s").load() == STATE


def test_a_damaged_state_file_is_said_and_read_from_the_log_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    JournalFile(disk, "s").save(STATE)
    whole = disk.read(PATH) or b""
    for changed in (b"", b"{", whole.replace(b'"0":5', b'"0":4')):
        disk.replace(PATH, changed)
        with caplog.at_level(logging.WARNING):
            assert JournalFile(disk, "s").load() is None
        assert "groupJournal.json" in caplog.text
        assert "read from the beginning" in caplog.text
        caplog.clear()


def test_a_file_without_a_checksum_is_read() -> None:
    disk = SimulatedDisk()
    JournalFile(disk, "s").save(STATE)
    whole = disk.read(PATH) or b""
    disk.replace(PATH, whole.splitlines()[0])
    assert JournalFile(disk, "s").load() == STATE


def test_a_large_state_is_encoded_in_steps_and_is_the_same() -> None:
    count = 5 * ENTRIES_PER_STEP
    state = JournalState(
        7,
        [TopicConfig(topic_name=f"T{number}") for number in range(count)],
        {f"T@g{number}": {0: number, 3: 5} for number in range(count)},
        {3: 9},
        [SubscriptionGroupConfig(f"g{number}") for number in range(count)],
        {"g1": {"T": 1}},
    )
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    for _ in file.save_in_steps(state):
        assert disk.read(PATH) is None, "nothing is changed before the last step"
    assert file.load() == state
    pieces = [len(piece) for piece in _in_pieces(state)]
    longest = max(pieces)
    assert longest < sum(pieces) / 5
    whole = (disk.read(PATH) or b"").splitlines()[0]
    assert whole == msgspec.json.encode(state), "as before there were steps"


def test_what_is_kept_of_the_file_is_what_was_written_last() -> None:
    """Else a look at the disk would find it changed, and write what was kept before anew."""
    disk = SimulatedDisk()
    file = JournalFile(disk, "s")
    file.save(STATE)
    assert file.load() == STATE
    file.save(msgspec.structs.replace(STATE, position=8))
    kept = disk.kept.of(PATH)
    assert kept is not None
    assert kept.content == disk.read(PATH)
