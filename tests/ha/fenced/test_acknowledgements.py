"""Puts that wait: who is answered what, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.fenced.acknowledgements import Acknowledgements
from ha.results import Refusal
from store.machine.waiting_row import WaitingRow
from store.results import Done, PutMessageStatus

OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT


class Desk:
    """Acknowledgements, and everything that was answered."""

    def __init__(self) -> None:
        self.refusal = ""
        self.asked = 0
        self.rounds: list[int] = []
        self.answers: list[tuple[int, PutMessageStatus, str]] = []
        self.acks = Acknowledgements(self.why_not_answer, self.rounds.append)

    def why_not_answer(self) -> Refusal | None:
        self.asked += 1
        return Refusal(14, self.refusal) if self.refusal else None

    def submit(
        self,
        end: int,
        *,
        reached: int = 0,
        deadline: float = 3.0,
        row: WaitingRow[Done] | None = None,
    ) -> None:
        self.acks.submit(
            self.acks.replicated if row is None else row,
            end,
            reached,
            deadline,
            lambda status, reason: self.answers.append((end, status, reason)),
        )

    @property
    def statuses(self) -> dict[int, PutMessageStatus]:
        return {end: status for end, status, _ in self.answers}


def test_what_is_replicated_is_answered_at_once() -> None:
    desk = Desk()
    desk.submit(100, reached=100)
    assert desk.statuses == {100: OK}
    assert (desk.asked, desk.rounds) == (1, [100])


def test_progress_answers_everybody_it_reaches() -> None:
    desk = Desk()
    for end in (100, 200, 300):
        desk.submit(end)
    assert desk.acks.reached(200, 0)
    assert desk.statuses == {100: OK, 200: OK}
    assert not desk.acks.reached(250, 0)
    assert desk.acks.waiting_count == 1


def test_those_who_wait_for_disks_are_not_answered_by_replication() -> None:
    desk = Desk()
    desk.submit(100, row=desk.acks.flushed)
    assert not desk.acks.reached(100, 50)
    assert desk.acks.reached(100, 100)
    assert desk.statuses == {100: OK}


def test_nobody_is_answered_well_while_it_may_not_be_said() -> None:
    desk = Desk()
    desk.refusal = "the lease is over"
    desk.submit(100, reached=100)
    assert not desk.acks.reached(100, 100)
    assert desk.answers == []
    desk.refusal = ""
    assert desk.acks.reached(100, 100)
    assert desk.statuses == {100: OK}


def test_it_is_asked_before_each_round_of_answers_and_only_then() -> None:
    desk = Desk()
    desk.submit(100)
    desk.submit(200)
    assert desk.asked == 0
    desk.acks.reached(50, 0)
    assert desk.asked == 0
    desk.acks.reached(200, 0)
    assert (desk.asked, desk.rounds) == (1, [200])


def test_time_runs_out() -> None:
    desk = Desk()
    desk.submit(100, deadline=3.0)
    desk.submit(200, deadline=4.0, row=desk.acks.flushed)
    assert desk.acks.next_deadline == 3.0
    assert not desk.acks.expire(2.9, str)
    assert desk.acks.expire(3.0, lambda end: f"{end} is late")
    assert desk.answers == [(100, LATE, "100 is late")]
    assert desk.acks.next_deadline == 4.0


def test_a_master_no_more_answers_everybody_now_and_later() -> None:
    desk = Desk()
    desk.submit(100)
    desk.submit(200, row=desk.acks.flushed)
    assert desk.acks.fail_all("no longer master")
    desk.submit(300, reached=300)
    assert not desk.acks.fail_all("for another reason")
    assert not desk.acks.reached(1000, 1000)
    assert desk.answers == [(end, LATE, "no longer master") for end in (100, 200, 300)]
    assert desk.acks.next_deadline is None


def test_a_put_does_not_overtake_one_that_waits() -> None:
    desk = Desk()
    desk.submit(100)
    desk.submit(200, reached=200)
    assert desk.answers == []
    desk.acks.reached(200, 0)
    assert [end for end, _, _ in desk.answers] == [100, 200]


def test_puts_out_of_order_are_a_bug() -> None:
    desk = Desk()
    desk.submit(100)
    with pytest.raises(ValueError, match="out of order"):
        desk.submit(99)
    with pytest.raises(ValueError, match="out of order"):
        desk.submit(101, deadline=2.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "flushed put", "progress", "time", "yes", "no"]),
            st.integers(1, 50),
        )
    )
)
def test_everybody_is_answered_once_and_only_with_what_is_true(
    steps: list[tuple[str, int]],
) -> None:
    desk = Desk()
    end, now, replicated, flushed = 0, 0.0, 0, 0
    submitted = []
    for what, size in steps:
        before = len(desk.answers)
        if "put" in what:
            end += size
            row = desk.acks.flushed if "flushed" in what else desk.acks.replicated
            reached = flushed if "flushed" in what else replicated
            desk.submit(end, reached=reached, deadline=now + 3, row=row)
            submitted.append(end)
        elif what == "progress":
            replicated = min(end, replicated + size)
            flushed = max(flushed, replicated - 10)
            desk.acks.reached(replicated, flushed)
        elif what == "time":
            now += size / 10
            desk.acks.expire(now, str)
        else:
            desk.refusal = "" if what == "yes" else "no"
        for answered, status, _ in desk.answers[before:]:
            assert status is LATE or (answered <= replicated and not desk.refusal)
    desk.acks.fail_all("over")
    assert sorted(answered for answered, _, _ in desk.answers) == submitted
