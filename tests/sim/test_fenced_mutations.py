"""The simulation of fenced groups can fail: deliberate bugs are caught.

All of them are hunted by `python -m tests.sim mutants`; here only some that are caught soon.
"""

import pytest

from tests.sim.fenced_mutations import MUTATIONS, hunt

CAUGHT_SOON = (
    "min_isr acknowledgements are enough, whoever they are from",
    "readers see what is not confirmed",
)
SEEDS_MAX = 40


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT_SOON)
def test_a_broken_variant_is_caught(name: str) -> None:
    assert hunt(name, SEEDS_MAX).seeds


def test_a_mutation_is_undone_afterwards() -> None:
    for mutation in MUTATIONS.values():
        real = vars(mutation.owner)[mutation.name]
        with mutation.applied():
            assert vars(mutation.owner)[mutation.name] is not real
        assert vars(mutation.owner)[mutation.name] is real


def test_there_are_many() -> None:
    assert len(MUTATIONS) >= 16
