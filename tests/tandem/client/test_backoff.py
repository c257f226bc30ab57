import pytest

from tandem.client.backoff import (
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    QUICK_TRIES,
    SILENT_SECONDS,
    Backoff,
    retry_pause_seconds,
)


def test_an_address_is_dialled_twenty_times_in_the_first_second_then_ever_more_rarely() -> None:
    backoff = Backoff()
    pauses = []
    for _ in range(QUICK_TRIES + 8):
        backoff.failed("a:1", now=100.0)
        pauses.append(round(backoff.seconds_left("a:1", now=100.0), 3))
    assert pauses[:QUICK_TRIES] == [PAUSE_SECONDS_MIN] * QUICK_TRIES
    assert pauses[QUICK_TRIES : QUICK_TRIES + 3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == PAUSE_SECONDS_MAX


def test_the_pauses_between_tries_of_one_request_grow_to_half_a_second_after_a_second() -> None:
    pauses = [retry_pause_seconds(count) for count in range(24)]
    assert sum(pauses[:QUICK_TRIES]) == pytest.approx(1.0)
    assert pauses[QUICK_TRIES:] == [0.1, 0.2, 0.4, 0.5]
    assert retry_pause_seconds(1000) == PAUSE_SECONDS_MAX


def test_the_pause_ends() -> None:
    backoff = Backoff()
    backoff.failed("a:1", now=100.0)
    assert backoff.seconds_left("a:1", now=100.0 + PAUSE_SECONDS_MIN) == 0.0


def test_an_answer_ends_it_at_once_and_other_addresses_are_not_concerned() -> None:
    backoff = Backoff()
    backoff.failed("a:1", now=100.0)
    assert backoff.seconds_left("b:1", now=100.0) == 0.0
    backoff.succeeded("a:1")
    backoff.succeeded("never failed:1")
    assert backoff.seconds_left("a:1", now=100.0) == 0.0


def test_a_silent_address_is_avoided_until_it_speaks_or_time_has_passed() -> None:
    backoff = Backoff()
    backoff.fell_silent("a:1", now=100.0)
    assert backoff.is_to_be_avoided("a:1", now=100.0)
    assert not backoff.is_to_be_avoided("b:1", now=100.0)
    assert not backoff.is_silent("a:1", now=100.0 + SILENT_SECONDS)
    backoff.spoke("a:1")
    backoff.spoke("never silent:1")
    assert not backoff.is_to_be_avoided("a:1", now=100.0)


def test_an_address_that_refuses_is_avoided_while_its_pause_lasts() -> None:
    backoff = Backoff()
    backoff.failed("a:1", now=100.0)
    assert backoff.is_to_be_avoided("a:1", now=100.0)
    assert not backoff.is_silent("a:1", now=100.0)
