"""A row of those who wait: who leaves it, when, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.machine.waiting_row import WaitingRow


def row_of(*waiting: tuple[int, float]) -> WaitingRow[str]:
    row: WaitingRow[str] = WaitingRow()
    for end_offset, deadline in waiting:
        row.add(end_offset, deadline, f"{end_offset}")
    return row


def test_those_who_are_reached_leave_in_order_and_the_rest_stay() -> None:
    row = row_of((100, 1.0), (200, 2.0), (300, 3.0))
    assert row.take_reached(99) == []
    assert row.take_reached(200) == ["100", "200"]
    assert (len(row), row.first_end, row.next_deadline) == (1, 300, 3.0)


def test_a_deadline_has_passed_when_it_is_now() -> None:
    row = row_of((100, 1.0), (200, 2.0), (300, 3.0))
    assert row.take_expired(0.9) == []
    assert row.take_expired(2.0) == [(100, "100"), (200, "200")]
    assert row.take_expired(2.0) == []


def test_an_empty_row_has_no_deadline() -> None:
    assert row_of().next_deadline is None
    assert not row_of()


def test_several_may_wait_for_the_same_offset_until_the_same_time() -> None:
    row = row_of((100, 1.0), (100, 1.0))
    assert row.take_reached(100) == ["100", "100"]


def test_everybody_can_be_taken_out_at_once() -> None:
    row = row_of((100, 1.0), (200, 2.0))
    assert row.take_all() == ["100", "200"]
    assert row.take_all() == []


@pytest.mark.parametrize(("end_offset", "deadline"), [(199, 2.0), (200, 1.9)])
def test_whoever_comes_out_of_order_is_a_bug(end_offset: int, deadline: float) -> None:
    row = row_of((100, 1.0), (200, 2.0))
    with pytest.raises(ValueError, match="out of order"):
        row.add(end_offset, deadline, "late")
    assert row.take_all() == ["100", "200"]


def test_an_emptied_row_forgets_what_came_before() -> None:
    row = row_of((200, 2.0))
    row.take_all()
    row.add(100, 1.0, "lower")
    assert row.take_all() == ["lower"]


def test_whoever_waits_anew_while_being_answered_is_not_lost() -> None:
    row: WaitingRow[str] = row_of((100, 1.0), (200, 2.0))
    for done in row.take_reached(200):
        row.add(300, 3.0, f"after {done}")
    assert row.take_all() == ["after 100", "after 200"]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30),
    st.lists(st.one_of(st.integers(0, 25), st.floats(0, 8, allow_nan=False)), max_size=20),
)
def test_everybody_leaves_once_and_for_a_reason(
    arrivals: list[tuple[int, int]], steps: list[int | float]
) -> None:
    ends = sorted(end for end, _ in arrivals)
    deadlines = sorted(float(deadline) for _, deadline in arrivals)
    row: WaitingRow[int] = WaitingRow()
    for number, (end, deadline) in enumerate(zip(ends, deadlines, strict=True)):
        row.add(end, deadline, number)
    left: list[int] = []
    for step in steps:
        if isinstance(step, int):
            reached = row.take_reached(step)
            assert all(ends[number] <= step for number in reached)
            assert not row or row.first_end > step
            left += reached
        else:
            expired = row.take_expired(step)
            assert all(deadlines[number] <= step for _, number in expired)
            assert all(ends[number] == end for end, number in expired)
            assert row.next_deadline is None or row.next_deadline > step
            left += [number for _, number in expired]
    assert left + row.take_all() == list(range(len(arrivals)))
