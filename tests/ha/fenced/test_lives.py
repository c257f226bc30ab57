"""Is a directory the one that ran last, or an older copy?"""

import pytest
from msgspec import structs

from ha.fenced.lives import Verdict, judge
from tandem.wire.group_state import LifeRecord
from tests.support.reasons import words

RECORD = LifeRecord(node="a", life=4, token="t4", incarnation="i", epoch=7, confirm=1000)


def verdict(
    record: LifeRecord | None = RECORD,
    *,
    life: int = 4,
    tokens: tuple[str, ...] = ("t4",),
    log_end: int = 1000,
    incarnation: str = "i",
    loss_accepted: int = 0,
    own_token: str = "t5",
) -> Verdict:
    return judge(
        record,
        life=life,
        tokens=tokens,
        incarnation=incarnation,
        log_end=log_end,
        loss_accepted=loss_accepted,
        own_token=own_token,
    )


def test_the_directory_that_ran_last_is_the_same() -> None:
    assert verdict() == Verdict()
    assert verdict(None, life=0, tokens=()) == Verdict()


def test_a_registration_without_an_answer_may_have_happened_or_not() -> None:
    assert verdict(life=3, tokens=("t3", "t4")) == Verdict()
    assert verdict(life=4, tokens=("t4", "t5", "t6")) == Verdict()


@pytest.mark.parametrize(("life", "tokens"), [(3, ("t3",)), (0, ()), (4, ("x4",)), (1, ("t1",))])
def test_another_life_is_known(life: int, tokens: tuple[str, ...]) -> None:
    found = verdict(life=life, tokens=tokens)
    assert "life 4 of a" in words(found.old_directory)
    assert not found.old_coordinator


@pytest.mark.parametrize("record", [None, RECORD])
def test_a_coordinator_that_knows_less_was_set_back(record: LifeRecord | None) -> None:
    found = verdict(record, life=5, tokens=("t5",))
    assert found.old_coordinator
    assert not found.old_directory


def test_a_log_below_what_it_confirmed_went_back_within_one_life() -> None:
    assert "confirmed everything below 1000" in words(verdict(log_end=999).old_directory)
    assert verdict(log_end=999, incarnation="new") == Verdict()
    assert verdict(log_end=999, loss_accepted=7) == Verdict()
    assert verdict(log_end=999, loss_accepted=6) != Verdict()


def test_a_sync_that_failed_in_another_life_of_the_same_replica_costs_its_name() -> None:
    failed = structs.replace(RECORD, failed="i")
    assert "a sync failed in life 4 of a" in words(verdict(failed).old_directory)
    assert verdict(failed, loss_accepted=9).old_directory
    assert verdict(failed, incarnation="another") == Verdict()
    assert verdict(structs.replace(RECORD, failed="another")) == Verdict()
    # The life that goes on has what it wrote, and a new directory has nothing that could fail.
    assert verdict(failed, own_token="t4") == Verdict()
    assert verdict(structs.replace(RECORD, incarnation="")) == Verdict()
