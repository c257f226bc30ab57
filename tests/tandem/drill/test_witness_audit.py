"""What another client was given, compared with what ours has read."""

import pytest

from tandem.drill.stream_audit import Content, Place
from tandem.drill.witness_audit import WITNESS_COUNTS, compare_witness

OURS: dict[Place, Content] = {
    (queue, offset): (f"sync-1-{queue}{offset}", 100 + offset)
    for queue in (0, 1)
    for offset in range(4)
}
GIVEN = list(OURS.items())


def test_the_same_messages_are_no_finding() -> None:
    found = compare_witness("Java", GIVEN, OURS)
    assert (found.deliveries, found.promises_broken, found.broken()) == (8, 0, [])


def test_what_is_given_again_is_counted_and_allowed() -> None:
    found = compare_witness("Java", [*GIVEN, *GIVEN[1:3]], OURS)
    assert (found.repeated, found.promises_broken) == (2, 0)


def test_what_has_not_come_yet_is_not_passed_over() -> None:
    assert compare_witness("Java", GIVEN[:2], OURS).promises_broken == 0
    assert compare_witness("Java", [], OURS).promises_broken == 0


def test_of_a_drill_that_ended_early_the_witness_may_be_ahead() -> None:
    ahead = [*GIVEN, ((0, 4), ("sync-1-04", 104))]
    assert compare_witness("Java", ahead, OURS, is_whole=False).promises_broken == 0
    within = {place: content for place, content in OURS.items() if place != (0, 2)}
    assert compare_witness("Java", GIVEN, within, is_whole=False).unknown == 1


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        ([GIVEN[0], *GIVEN[2:]], "missing"),
        ([*GIVEN[:3], ((0, 3), ("sync-9-99", 103)), *GIVEN[4:]], "different"),
        ([*GIVEN[:3], ((0, 3), (GIVEN[3][1][0], 7)), *GIVEN[4:]], "different"),
        ([*GIVEN, ((0, 4), ("sync-1-04", 104))], "unknown"),
        ([*GIVEN, ((7, 0), ("sync-1-70", 100))], "unknown"),
        ([GIVEN[0], GIVEN[2], GIVEN[1], *GIVEN[3:]], "out_of_order"),
    ],
)
def test_each_difference_is_one_finding_with_its_place(
    given: list[tuple[Place, Content]], finding: str
) -> None:
    found = compare_witness("Java", given, OURS)

    assert found.broken() == [(f"witness_{finding}", 1)]
    assert {name: getattr(found, name) for name in WITNESS_COUNTS if name != finding} == (
        dict.fromkeys((name for name in WITNESS_COUNTS if name != finding), 0)
    )
    (example,) = found.examples
    assert example.startswith(f"{finding}: queue ")
