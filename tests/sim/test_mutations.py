"""The simulation can fail: broken variants of the code are caught within a few seeds."""

from itertools import islice

import pytest

from tests.sim.mutations import MUTATIONS, seeds_for
from tests.sim.simulation import run_seed

SEEDS_MAX = 30


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_variant_is_caught(name: str) -> None:
    mutation = MUTATIONS[name]
    found = set()
    for seed in islice(seeds_for(mutation), SEEDS_MAX):
        with mutation.applied():
            found |= {finding.kind for finding in run_seed(seed).findings}
        if found & mutation.caught_as:
            return
    pytest.fail(f"not caught in {SEEDS_MAX} seeds; findings were {found or 'none'}")


def test_a_mutation_is_undone_afterwards() -> None:
    for mutation in MUTATIONS.values():
        real = getattr(mutation.owner, mutation.name)
        with mutation.applied():
            assert getattr(mutation.owner, mutation.name) is not real
        assert getattr(mutation.owner, mutation.name) is real
