"""The simulation of fenced groups can fail: deliberate bugs are caught.

The ordinary suite plays only seeds that are known to catch some of them; the whole hunt is long.
"""

import pytest

from tests.sim.fenced_checker import Kind
from tests.sim.fenced_mutations import MUTATIONS, SEEDS_MAX, findings_of, hunt
from tests.sim.fenced_scenario import play, read_scenario

CAUGHT_BY = {
    "min_isr acknowledgements are enough, whoever they are from": 0,
    "a promise is kept in memory only": 0,
    "a cut leaves the bytes where they are": 3,
    "the entry of an idle epoch stays, the next is refused": 4,
    "a failed sync is tried again as if nothing had happened": 0,
    "a candidate promises, and follows the old master on": 5,
    "commits are answered before they are confirmed": 0,
}
"""Seeds. Whoever changes the plans finds others with `python -m tests.sim mutants NAME`."""


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_broken_variant_is_caught(name: str) -> None:
    with MUTATIONS[name].applied():
        assert findings_of(CAUGHT_BY[name])


@pytest.mark.sim
@pytest.mark.slow
def test_only_the_revision_of_the_state_stops_a_late_transaction() -> None:
    late = read_scenario("late-transaction")
    with MUTATIONS["transactions do not compare the revision of the state"].applied():
        kinds = {finding.kind for finding in play(late).findings}
    assert {Kind.TWO_MASTERS, Kind.EPOCH_JUMPED} <= kinds


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_broken_variant_is_caught(name: str) -> None:
    assert hunt(name, SEEDS_MAX).seeds


def test_a_mutation_is_undone_afterwards() -> None:
    for mutation in MUTATIONS.values():
        real = vars(mutation.owner)[mutation.name]
        with mutation.applied():
            assert vars(mutation.owner)[mutation.name] is not real
        assert vars(mutation.owner)[mutation.name] is real


def test_there_are_many() -> None:
    assert len(MUTATIONS) >= 20
