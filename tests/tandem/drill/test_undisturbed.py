"""Planted faults: each way in which a group may be disturbed, and each excuse of a slow machine."""

import msgspec
import pytest

from tandem.drill.ledger import LedgerEntry
from tandem.drill.lost_leases import Late, LostLease
from tandem.drill.outcomes import NOT_SENT
from tandem.drill.undisturbed import Calm, CalmTime, look_at_calm
from tandem.drill.watched_group import Change
from tests.tandem.drill.ledger_samples import STARTED_MS, send

TIMES = [CalmTime("a", 10.0, 20.0), CalmTime("b", 30.0, 40.0)]
SLOWER_THAN_MS = 1_500.0


def judged(
    *entries: LedgerEntry,
    history: tuple[Change, ...] = (),
    lost: tuple[LostLease, ...] = (),
    lateness: tuple[Late, ...] = (),
    crawls: bool = False,
) -> Calm:
    return look_at_calm(
        entries,
        TIMES,
        started_ms=STARTED_MS,
        slower_than_ms=SLOWER_THAN_MS,
        history=history,
        lost=lost,
        lateness=lateness,
        crawls=crawls,
    )


def test_a_group_that_nobody_disturbs_is_calm() -> None:
    found = judged(*(send(at) for at in (5.0, 11.0, 25.0, 35.0)))
    assert (found.sends, found.disturbed, found.seconds) == (2, 0, 20.0)
    assert found.slowest_ms == 5.0
    assert found.examples == []


def test_a_send_that_fails_disturbs() -> None:
    found = judged(send(11.0, status=NOT_SENT))
    assert (found.failed, found.slow, found.disturbed) == (1, 0, 1)
    assert found.examples[0].startswith("sync-1-11")


def test_a_send_that_is_slow_disturbs_and_one_that_just_is_not_does_not() -> None:
    found = judged(send(11.0, SLOWER_THAN_MS), send(12.0, SLOWER_THAN_MS + 0.1))
    assert (found.failed, found.slow, found.disturbed) == (0, 1, 1)
    assert found.slowest_ms == pytest.approx(1500.1)


def test_what_is_before_the_fault_and_after_the_drain_is_not_judged() -> None:
    found = judged(send(9.9, 9_000.0), send(20.1, status=NOT_SENT))
    assert (found.sends, found.disturbed) == (0, 0)


def test_an_election_disturbs() -> None:
    elected = Change(33.0, "epoch", "broker-b-1", 4)
    assert judged(history=(elected,)).elections == 1
    assert judged(history=(msgspec.structs.replace(elected, at_seconds=25.0),)).elections == 0
    assert judged(history=(msgspec.structs.replace(elected, kind="open"),)).elections == 0


@pytest.mark.parametrize(
    ("late", "excused"), [(Late(12.0, 1.0), 1), (Late(12.0, 0.1), 0), (Late(31.0, 9.0), 0)]
)
def test_a_drill_that_did_not_run_meanwhile_shows_nothing(late: Late, excused: int) -> None:
    found = judged(send(11.0, 3_000.0), lateness=(late,))
    assert (found.slow, found.excused, found.disturbed) == (1, excused, 1 - excused)


@pytest.mark.parametrize(
    ("lost_at", "late_seconds", "excused"),
    [(32.0, 3.0, 1), (32.0, 0.0, 0), (11.0, 3.0, 0), (36.0, 3.0, 0)],
)
def test_a_lease_that_a_slow_machine_lost_excuses_what_comes_after_it(
    lost_at: float, late_seconds: float, excused: int
) -> None:
    lease = LostLease(
        at_seconds=lost_at,
        node="broker-b-1",
        epoch=3,
        late_seconds=late_seconds,
        lease_seconds=5.0,
    )
    found = judged(history=(Change(33.0, "epoch", "broker-b-2", 4),), lost=(lease,))
    assert (found.elections, found.excused) == (1, excused)


def test_a_machine_that_crawls_excuses_all() -> None:
    assert judged(send(11.0, 9_000.0), crawls=True).disturbed == 0
