import msgspec
from hypothesis import given
from hypothesis import strategies as st

from node.pop.changes import (
    Acked,
    Change,
    Cut,
    Moved,
    Popped,
    Reset,
    Revived,
    offsets_of,
    runs_of,
)

OFFSETS = st.sets(st.integers(0, 10_000), max_size=40).map(sorted)


@given(OFFSETS)
def test_runs_stand_for_the_offsets_that_they_were_made_of(offsets: list[int]) -> None:
    assert offsets_of(runs_of(offsets)) == offsets


def test_a_run_is_what_is_skipped_and_how_many_follow() -> None:
    assert runs_of([100, 101, 102, 105]) == [100, 3, 2, 1]
    assert runs_of([]) == []
    assert runs_of(range(32)) == [0, 32]


def test_every_change_is_itself_after_the_journal() -> None:
    key = ("g", "T", 3)
    changes: list[Change] = [
        Popped(*key, 1000, 60_000, 120, [100, 3], is_orderly=True, attempt_id="x"),
        Acked(*key, [(1000, [100, 1])]),
        Revived(*key, [(1000, [101, 1])]),
        Moved(*key, 102, 1000, 1001, 5000),
        Reset(*key, 50),
        Cut(*key, 40),
    ]
    encoded = msgspec.json.encode(changes)
    assert msgspec.json.decode(encoded, type=list[Change]) == changes


def test_a_usual_change_is_small() -> None:
    change = Popped("group", "topic", 0, 1_700_000_000_000, 60_000, 132, runs_of(range(100, 132)))
    assert len(msgspec.json.encode(change)) < 80
