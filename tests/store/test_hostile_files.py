"""Whatever somebody does to the files of a store: it opens and works, or is refused in one line.

See `mutations_of_files.py` for what is done, and for what is checked.
"""

import random
from functools import cache

import pytest

from tests.store.mutations_of_files import Specimen, check_hostile, mutate, specimens

CASES = 1600
SHARES = 8


@cache
def stores() -> list[Specimen]:
    return specimens()


def check_seeds(seeds: range) -> None:
    outcomes = {True: 0, False: 0}
    for seed in seeds:
        chance = random.Random(seed)
        mutated, done = mutate(chance.choice(stores()), chance)
        try:
            outcomes[bool(check_hostile(mutated))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}: {mutated.name}: {done}")
            raise
    assert min(outcomes.values()) > len(seeds) // 20


@pytest.mark.parametrize("index", range(len(specimens())))
def test_a_store_that_nobody_touched_opens(index: int) -> None:
    assert check_hostile(stores()[index]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_damaged_store_works_or_is_refused(share: int) -> None:
    size = CASES // SHARES
    check_seeds(range(share * size, (share + 1) * size))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_damaged_stores_work_or_are_refused() -> None:
    check_seeds(range(1_000_000, 1_020_000))
