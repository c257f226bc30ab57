"""Whatever says that something is on the disk has synced it, and the names on the way to it."""

from pathlib import Path

import pytest

from tests.durability.operations import OPERATIONS
from tests.support.strict_machine import StrictMachine


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_was_answered_is_left_after_a_power_loss(name: str, tmp_path: Path) -> None:
    machine = StrictMachine(tmp_path)
    with machine.watching():
        OPERATIONS[name](tmp_path, machine)
    assert machine.syncs_count
