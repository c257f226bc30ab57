"""Every sync that is left out is noticed."""

from pathlib import Path

import pytest

from tests.durability.mutations import MUTATIONS
from tests.durability.operations import OPERATIONS
from tests.support.strict_machine import StrictMachine


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_sync_that_is_left_out_is_noticed(name: str, tmp_path: Path) -> None:
    mutation, operation = MUTATIONS[name]
    machine = StrictMachine(tmp_path)
    with mutation.applied(), machine.watching(), pytest.raises(AssertionError):
        OPERATIONS[operation](tmp_path, machine)


def test_a_mutation_is_undone_afterwards() -> None:
    for mutation, _ in MUTATIONS.values():
        before = mutation.function.__code__
        with mutation.applied():
            assert mutation.function.__code__ is not before
        assert mutation.function.__code__ is before
