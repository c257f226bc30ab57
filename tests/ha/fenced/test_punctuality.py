"""What a process says of a machine that does not run it in time."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced.punctuality import GAPS_MAX, REMEMBERED_SECONDS, START_SECONDS, Punctuality
from store import PutMessageStatus
from tests.ha.fenced_world import open_world
from tests.ha.world import fenced_config

CONFIG = fenced_config("a")
"""A lease of 5 s, and a keep-alive every second."""


def test_a_keep_alive_that_is_late_because_nothing_was_run_says_so() -> None:
    own = Punctuality()
    assert own.asks(CONFIG, 0.0) is None
    assert own.asks(CONFIG, 1.0) is None
    own.slept(2.0, 5.0)
    words = own.asks(CONFIG, 5.0)
    assert words is not None
    assert "3.0 s late" in words
    lateness = own.lateness(CONFIG, 6.0)
    assert (lateness.longest_seconds, lateness.late_keep_alives) == (3.0, 1)
    assert "lease_ttl_ms" in lateness.words


def test_one_that_is_late_for_want_of_an_answer_does_not() -> None:
    own = Punctuality()
    own.asks(CONFIG, 0.0)
    own.slept(1.0, 1.3)
    assert own.asks(CONFIG, 4.0) is None
    lateness = own.lateness(CONFIG, 4.0)
    assert (lateness.late_keep_alives, lateness.words) == (0, "")
    assert lateness.longest_seconds == pytest.approx(0.3)


def test_a_standstill_that_many_tasks_see_counts_once() -> None:
    own = Punctuality()
    own.asks(CONFIG, 0.0)
    own.slept(1.0, 3.0)
    own.slept(1.2, 3.0)
    own.slept(0.9, 3.01)
    assert own.lateness(CONFIG, 3.1).longest_seconds == pytest.approx(2.11)
    words = own.asks(CONFIG, 3.01)
    assert words is not None
    assert "not run for 2.1 s" in words


def test_the_first_keep_alive_of_a_lease_is_not_late() -> None:
    own = Punctuality()
    own.asks(CONFIG, 0.0)
    own.slept(1.0, 50.0)
    own.registered()
    assert own.asks(CONFIG, 50.0) is None


def test_what_was_long_ago_is_forgotten_but_counted() -> None:
    own = Punctuality()
    own.asks(CONFIG, 0.0)
    own.slept(1.0, 3.0)
    own.asks(CONFIG, 3.0)
    lateness = own.lateness(CONFIG, 3.0 + REMEMBERED_SECONDS)
    assert (lateness.longest_seconds, lateness.late_keep_alives, lateness.words) == (0.0, 1, "")
    for number in range(2 * GAPS_MAX):
        own.slept(10.0 * number, 10.0 * number + 1)
    assert len(own._gaps) == GAPS_MAX


def test_a_lost_lease_says_what_this_process_had_to_do_with_it() -> None:
    own = Punctuality()
    assert own.why_lease_ended(10.0, 5_000) is None
    own.slept(5.0, 9.0)
    assert "not run for 4.0 s" in (own.why_lease_ended(10.0, 5_000) or "")
    assert own.why_lease_ended(20.0, 5_000) is None


@pytest.mark.parametrize(
    ("gap", "troubles"),
    [(0.0, 0), (0.2, 0), (0.5, 1), (1.5, 2), (2.0, 3)],
)
def test_the_times_that_cannot_hold_are_named_once_after_the_start(
    gap: float, troubles: int
) -> None:
    own = Punctuality()
    own.slept(0.0, 0.0)
    own.slept(1.0, 1.0 + gap)
    assert own.at_start(CONFIG, START_SECONDS - 0.1) is None
    words = own.at_start(CONFIG, START_SECONDS)
    found = [
        text
        for text in ("lease of 5000 ms", "keep-alives, one", "elections")
        if words and text in words
    ]
    assert len(found) == troubles
    assert own.at_start(CONFIG, START_SECONDS + 1) is None


def test_a_longer_lease_holds() -> None:
    own = Punctuality()
    own.slept(1.0, 3.0)
    patient = msgspec.structs.replace(CONFIG, lease_ttl_ms=60_000, keepalive_interval_ms=5_000)
    words = own.at_start(patient, START_SECONDS + 1.0)
    assert words is not None
    assert "elections" in words
    assert "lease of" not in words


async def test_a_node_that_is_not_run_says_so_in_its_status_and_its_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert master.ha.status().too_slow == ""
        await trio.sleep(START_SECONDS + 1)
        autojump_clock.jump(2.5)  # nobody is run meanwhile
        await trio.sleep(2)
        status = master.ha.status()
        assert status.late_keep_alives >= 1
        assert status.not_run_ms >= 2_000
        assert "too slow" in status.too_slow
        assert master.ha.replica_standing().late_keep_alives == status.late_keep_alives
        said = [record for record in caplog.records if "not run" in record.getMessage()]
        assert {record.name for record in said} == {"ha.fenced.coordinator_session"}
        assert await (await world.master()).send(b"|m1|") is PutMessageStatus.PUT_OK


def test_a_standstill_is_known_to_whom_goes_on_first_after_it() -> None:
    own = Punctuality()
    own.sleeps_until(1.0)
    assert own.why_lease_ended(1.0, 5_000) is None
    assert "7.0 s" in str(own.why_lease_ended(8.0, 5_000))
    own.slept(1.0, 8.1)
    assert "7.1 s" in str(own.why_lease_ended(8.1, 5_000))


def test_a_task_that_has_gone_on_and_waits_for_another_node_is_no_standstill() -> None:
    own = Punctuality()
    own.sleeps_until(1.0)
    own.slept(1.0, 1.0)
    assert own.why_lease_ended(8.0, 5_000) is None


async def test_a_lease_that_ended_for_that_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        autojump_clock.jump(7.0)
        await world.wait_for(lambda: master.rounds > 1)
        said = [record for record in caplog.records if record.name == "ha.fenced.leadership"]
        ended = [record for record in said if "no longer master" in record.getMessage()]
        assert "this process was not run for" in ended[0].getMessage()
