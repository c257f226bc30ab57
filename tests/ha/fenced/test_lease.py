"""The deadline of a lease, by hand and for any sequence of keep-alives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.errors import LocalHAError
from ha.fenced.lease import LeaseDeadline


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    lease = LeaseDeadline(5, asked_at=100.0)
    assert lease.deadline == pytest.approx(104.55)
    assert lease.holds(104.5)
    assert not lease.holds(104.55)


def test_a_keep_alive_moves_the_deadline_from_its_sending_on() -> None:
    lease = LeaseDeadline(5, asked_at=100.0)
    lease.renewed(5, asked_at=101.0)
    assert lease.deadline == pytest.approx(105.55)


def test_the_smaller_of_granted_and_answered_time_counts() -> None:
    lease = LeaseDeadline(5, asked_at=0.0)
    lease.renewed(60, asked_at=1.0)
    assert lease.deadline == pytest.approx(5.55)
    lease.renewed(2, asked_at=2.0)
    assert lease.deadline == pytest.approx(3.7)


def test_what_is_left_is_never_negative() -> None:
    lease = LeaseDeadline(5, asked_at=0.0)
    assert lease.left_seconds(4.0) == pytest.approx(0.55)
    assert lease.left_seconds(50.0) == 0.0


def test_an_older_keep_alive_is_refused_and_changes_nothing() -> None:
    lease = LeaseDeadline(5, asked_at=10.0)
    with pytest.raises(LocalHAError):
        lease.renewed(5, asked_at=9.0)
    assert lease.deadline == pytest.approx(14.55)


@given(
    st.integers(2, 60),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1), st.integers(1, 90))),
)
def test_it_never_holds_when_the_coordinator_may_have_forgotten_it(
    granted: int, rounds: list[tuple[float, float, int]]
) -> None:
    """The coordinator renews at some moment between sending and answer, and counts from then."""
    now = 0.0
    lease = LeaseDeadline(granted, asked_at=now)
    expires = now + granted
    for pause, delay, ttl in rounds:
        asked_at = now + pause
        renewed_at = asked_at + delay
        if renewed_at >= expires:
            break
        lease.renewed(ttl, asked_at)
        expires = renewed_at + ttl
        now = renewed_at
        assert lease.deadline < expires
