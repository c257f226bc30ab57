from __future__ import annotations

import pytest

from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import (
    JournalFormatError,
)
from tests.support.simulated_disk import SimulatedDisk


async def test_a_damaged_state_file_is_told() -> None:
    disk = SimulatedDisk()
    disk.replace("s/config/groupJournal.json", b"{")
    with pytest.raises(JournalFormatError, match="remove it"):
        JournalFile(disk, "s").load()
