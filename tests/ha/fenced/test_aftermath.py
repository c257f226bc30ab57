"""What is done when no new connection to the master can help."""

import pytest

from ha.fenced.aftermath import Aftermath, AskOperator, CopyAnew, CutLog, aftermath_of
from ha.fenced.epochs import EpochEntry
from ha.fenced.joining import Diverged, FollowerOutcome, NeedsFullCopy, NeedsTruncation

CONFIRMED = 1000
ENTRIES = (EpochEntry(1, 0),)


def order(cut: int) -> NeedsTruncation:
    return NeedsTruncation(cut=cut, end=3000, entries=ENTRIES, master="b", epoch=2)


def after(outcome: FollowerOutcome, *, may_be_member: bool = True) -> Aftermath:
    return aftermath_of(outcome, confirm_offset=CONFIRMED, may_be_member=may_be_member)


@pytest.mark.parametrize("cut", [CONFIRMED, CONFIRMED + 1])
@pytest.mark.parametrize("may_be_member", [False, True])
def test_what_was_never_confirmed_is_cut(cut: int, *, may_be_member: bool) -> None:
    assert after(order(cut), may_be_member=may_be_member) == CutLog(order(cut))


def test_what_was_confirmed_is_not_cut() -> None:
    asked = after(order(CONFIRMED - 1))
    assert isinstance(asked, AskOperator)
    assert "everything below 1000 was confirmed" in asked.reason


def test_a_log_that_nobody_needs_is_copied_anew() -> None:
    outcome = NeedsFullCopy(reason="the master's log begins later")
    assert after(outcome, may_be_member=False) == CopyAnew("the master's log begins later")


def test_a_log_that_may_be_needed_is_kept() -> None:
    asked = after(NeedsFullCopy(reason="the master's log begins later"))
    assert isinstance(asked, AskOperator)
    assert "tandem ha rejoin" in asked.reason


@pytest.mark.parametrize("may_be_member", [False, True])
def test_two_histories_are_a_matter_for_an_operator(*, may_be_member: bool) -> None:
    outcome = Diverged(reason="the logs part at 5")
    assert after(outcome, may_be_member=may_be_member) == AskOperator("the logs part at 5")
