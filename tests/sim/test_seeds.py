"""Whole groups under seeded faults: no seed breaks a promise.

A seed that fails is printed with the command that replays it. Chunks let pytest-xdist share the
seeds out.
"""

import sys

import pytest

from tests.sim.playbooks import PLAYBOOKS

SEEDS = {
    "classic": 2,
    "fenced": 3,
    "fenced-versions": 3,
    "classic-consumers": 1,
    "fenced-consumers": 1,
    "fenced-pop": 1,
}
"""How many the ordinary suite plays: a look at each day's work. A campaign plays thousands."""
SEEDS_OF_LONG = 3_000
SEEDS_PER_TEST = 25
"""Each worker of each run collects all of these tests, the long ones, too."""

FOUND_SOMETHING_ONCE = {
    ("fenced", 700_327): "logs that never had an epoch in common ended in quarantine",
    ("fenced", 700_710): "a candidate whose turn was a rounding error away spun for ever",
    ("fenced", 800_163): "a lease was revoked in the step in which it ended",
    ("fenced", 9_100_371): "a disk took a page for given up that it had written since",
    ("fenced", 28_000_066): "a look at a slow disk rested before it said what it had found",
    ("fenced", 28_100_234): "bytes of an open file, of no checksum, kept a follower away",
    ("fenced", 30_000_292): "a node did not see that the coordinator lacked what it wrote last",
    ("fenced", 28_200_523): "all nodes were needed to confirm what one had to have to start",
    ("fenced", 33_000_199): "a file whose end only the damaged node had was not healed at all",
    ("fenced", 33_000_584): "a bit of a queue's number changed in a file that a reader was in",
    (
        "fenced",
        35_000_902,
    ): "a third node, killed before it took a fingerprint, was not asked for one",
    ("fenced", 29_003_037): "a first file was lost before it was written down where the log begins",
    ("fenced", 29_003_122): "the same, where the disk had been full when that was to be written",
    (
        "fenced-consumers",
        19_000_041,
    ): "a snapshot called deliveries noted that its master did not know",
    (
        "fenced-consumers",
        31_260_065,
    ): "a vote that was to be late was late after everything was healed",
    ("fenced", 35_000_106): "a page changed before its fingerprint, while a third node was away",
    ("fenced", 37_000_676): "a fingerprint of what was cut off kept the rest from being healed",
    ("fenced", 38_000_372): "two of three nodes were all others while the third was away",
    ("fenced", 38_000_566): "one fingerprint was believed while the third node was away",
    ("fenced", 40_000_109): "a bad record was whole by a fingerprint that was taken of it",
    ("fenced", 43_000_391): "a third node that had lost its fingerprint was not asked to look",
    ("fenced", 43_000_426): "a coordinator that was set back gave an epoch twice",
    ("fenced", 44_000_134): "properties that no CRC covers rotted, and were read before a scrub",
    ("fenced", 44_000_144): "the same, of a file with a fingerprint",
    ("fenced", 44_000_130): "an empty file got the name of one that was deleted under its node",
    ("fenced", 45_000_580): "a sync failed at the only node in sync: nobody may be master",
}


def _chunks(first: int, end: int, kind: str) -> list[tuple[str, int, int]]:
    starts = range(first, end, SEEDS_PER_TEST)
    return [(kind, start, min(start + SEEDS_PER_TEST, end)) for start in starts]


def _play_chunk(kind: str, first: int, end: int) -> None:
    for seed in range(first, end):
        # Seen if the run hangs and the time limit of the test ends it.
        sys.stdout.write(f"{kind} seed {seed}\n")
        result = PLAYBOOKS[kind].run_seed(seed)
        assert not result.findings, result.report()


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [chunk for kind, most in SEEDS.items() for chunk in _chunks(0, most, kind)],
)
def test_no_seed_breaks_a_promise(kind: str, first: int, end: int) -> None:
    _play_chunk(kind, first, end)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "seed"), FOUND_SOMETHING_ONCE)
def test_what_a_seed_has_found_stays_mended(kind: str, seed: int) -> None:
    result = PLAYBOOKS[kind].run_seed(seed)
    assert not result.findings, result.report()


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [chunk for kind, start in SEEDS.items() for chunk in _chunks(start, SEEDS_OF_LONG, kind)],
)
def test_no_seed_of_many_breaks_a_promise(kind: str, first: int, end: int) -> None:
    _play_chunk(kind, first, end)
