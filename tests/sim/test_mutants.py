"""The simulation can fail: deliberate bugs are caught.

Scenarios show many of them for certain. Others need luck: a seed that had it once may have none
after any change of plans or code. So seeds are for the hunt, which is long.
"""

import pytest

from tests.sim.fenced.checker import Kind
from tests.sim.mutants import SEEDS_MAX, caught, caught_in, hunt
from tests.sim.playbooks import MUTATIONS, PLAYBOOKS

EVERY = [(kind, name) for kind, mutations in MUTATIONS.items() for name in mutations]

SHOWN_BY = {
    ("classic", "slaves-over-slow-links"): [
        "an acknowledgement answers every waiting put",
        "a pull skips a message",
    ],
    ("classic", "slaves-cannot-be-heard"): [
        "the slave never dials again",
    ],
    ("fenced", "w13-double-failure"): [
        "min_isr acknowledgements are enough, from any nodes",
    ],
    ("fenced", "late-transaction"): [
        "a promise is kept in memory only",
    ],
    ("fenced", "w18-kill-inside-the-cut"): [
        "a cut leaves the bytes where they are",
    ],
    ("fenced", "w01-idle-epochs"): [
        "the entry of an idle epoch stays, the next is refused",
    ],
    ("classic-consumers", "retry-topic-taken-by-a-crash"): [
        "a message is given up one try too soon",
        "dead letters are answered and dropped",
    ],
    ("fenced-consumers", "groups-through-two-switches"): [
        "a message is given up one try too late",
        "what comes back is answered and dropped",
        "a rollback commits",
        "a transaction ends as often as somebody ends it",
    ],
    ("fenced-consumers", "lock-of-a-client-that-is-cut-off"): [
        "every client that asks gets the lock",
        "locks end sooner than clients believe",
    ],
    ("fenced-pop", "handles-through-two-switches"): [
        "what is over is called done and is not put",
        "a time is over a second too soon",
        "a message is given up one try too soon",
        "followers do not follow what is with consumers",
        "a pop skips a message",
        "a queue in order is always open",
        "a changed time is not changed",
        "some of what was handed out is called done",
    ],
    ("fenced-pop", "nobody-waits"): [
        "nobody looks at times while nobody waits",
    ],
    ("fenced-versions", "rolling-upgrade-and-raise"): [
        "a new master forgets the level",
        "a level is raised that a member does not know",
    ],
    ("classic", "answers-are-lost"): [
        "the client says of a lost request that it never left",
    ],
    ("fenced", "w24-stale-reads"): [
        "readers are shown what was confirmed half a second ago",
    ],
    ("classic", "first-file-of-a-slave-is-lost"): [
        "a first file that is missing is taken for retention",
    ],
}
"""Scenarios, and what each shows."""

SHOWN = [(kind, name, script) for (kind, script), names in SHOWN_BY.items() for name in names]

CAUGHT_BY = {
    ("classic", "the slave reports one byte more than it has"): 0,
    ("classic", "the slave reports what it received, not what it appended"): 0,
    ("classic", "the slave does not compare its log with the master's"): 64,
    ("classic", "an acknowledgement answers every waiting put"): 1,
    ("classic", "puts do not wait for slaves"): 1,
    ("classic", "puts are answered before the sync"): 0,
    ("classic", "recovery believes a torn record"): 66,
    ("classic", "a queue offset is used again"): 0,
    ("classic", "a pull skips a message"): 0,
    ("classic", "the client says of a lost request that it never left"): 0,
    ("classic", "the client sends again what the answer says not to"): 2,
    ("classic", "the slave never dials again"): 0,
    ("classic", "a first file that is missing is taken for retention"): 40,
    ("fenced", "min_isr acknowledgements are enough, from any nodes"): 0,
    ("fenced", "a promise is kept in memory only"): 0,
    ("fenced", "a cut leaves the bytes where they are"): 4,
    ("fenced", "the entry of an idle epoch stays, the next is refused"): 0,
    ("fenced", "a failed sync is tried again as if nothing had happened"): 34,
    ("fenced", "a candidate promises, and follows the old master on"): 16,
    ("fenced", "commits are answered before they are confirmed"): 0,
    ("fenced", "a put that waits for all disks is answered when it is written"): 9,
    ("fenced", "readers are shown what was confirmed half a second ago"): 0,
    ("fenced", "recover-group takes the shortest log"): 32,
    ("fenced", "a member that has just started believes that it has everything"): 292,
    ("fenced", "the scrub looks at memory only"): 14,
    ("fenced", "replicas do not compare what they have"): 507,
    ("fenced", "other bytes at a joint are an alarm at once"): 51,
    ("fenced", "a first file that is missing is taken for retention"): 14,
    ("fenced", "a damaged node is elected where a whole one could be"): 221,
    ("fenced", "a damaged master stays, though a whole member follows"): 132,
    ("fenced", "what others give is put in place, whether it fits or not"): 36,
    ("fenced", "a peer is given bytes that nobody has looked at"): 23,
    ("fenced", "a read passes over a damaged record"): 7,
    ("fenced", "damage is forgotten at a restart"): 17,
    ("classic-consumers", "a message is given up one try too soon"): 0,
    ("classic-consumers", "dead letters are answered and dropped"): 10,
    ("fenced-consumers", "a message is given up one try too late"): 0,
    ("fenced-consumers", "what comes back is answered and dropped"): 0,
    ("fenced-consumers", "every client that asks gets the lock"): 43,
    ("fenced-consumers", "a rollback commits"): 0,
    ("fenced-consumers", "a transaction ends as often as somebody ends it"): 0,
    ("fenced-consumers", "any node says where a group is"): 19,
    ("fenced-pop", "what changes is answered before it is confirmed"): 7,
    ("fenced-pop", "what is over is called done and is not put"): 0,
    ("fenced-pop", "a time is over a second too soon"): 0,
    ("fenced-pop", "a message is given up one try too soon"): 0,
    ("fenced-pop", "a pop skips a message"): 0,
    ("fenced-pop", "followers do not follow what is with consumers"): 1,
    ("fenced-pop", "what has no priority comes first"): 7,
    ("fenced-pop", "a queue in order is always open"): 0,
    ("fenced-pop", "a changed time is not changed"): 0,
    ("fenced-pop", "some of what was handed out is called done"): 0,
    ("fenced-pop", "nobody looks at times while nobody waits"): 9,
}
"""Seeds that caught one when somebody looked last; a hunt begins with them. They drift, and that is
no fault: `python -m tests.sim mutants NAME` finds others."""


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "script"), SHOWN)
def test_a_broken_variant_is_caught(kind: str, name: str, script: str) -> None:
    assert caught_in(name, kind, script)


@pytest.mark.sim
@pytest.mark.slow
def test_only_the_revision_of_the_state_stops_a_late_transaction() -> None:
    book = PLAYBOOKS["fenced"]
    late = book.read_scenario("late-transaction")
    name = "transactions do not compare the revision of the state"
    with MUTATIONS["fenced"][name].applied():
        kinds = {finding.kind for finding in book.play(late).findings}
    assert {Kind.TWO_MASTERS, Kind.EPOCH_JUMPED} <= kinds


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_broken_variant_is_caught_by_a_seed(kind: str, name: str) -> None:
    known = CAUGHT_BY.get((kind, name))
    is_caught = known is not None and caught(name, kind, known)
    assert is_caught or hunt(name, kind, SEEDS_MAX).seeds


def test_a_mutation_is_undone_afterwards() -> None:
    for kind, name in EVERY:
        mutation = MUTATIONS[kind][name]
        real = vars(mutation.owner)[mutation.name]
        with mutation.applied():
            assert vars(mutation.owner)[mutation.name] is not real
        assert vars(mutation.owner)[mutation.name] is real


def test_what_scenarios_and_seeds_show_are_mutations() -> None:
    assert {*((kind, name) for kind, name, _ in SHOWN), *CAUGHT_BY} <= {*EVERY}


def test_there_are_many() -> None:
    assert len(MUTATIONS["fenced"]) >= 20
    assert len(MUTATIONS["classic"]) >= 12
    assert len(MUTATIONS["classic-consumers"]) >= 15
    assert len(MUTATIONS["fenced-consumers"]) >= 17
    assert len(MUTATIONS["fenced-pop"]) >= 10
