from tandem.client.backoff import (
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    SILENT_SECONDS,
    Backoff,
    retry_pause_seconds,
)


def test_the_pause_doubles_up_to_its_bound() -> None:
    backoff = Backoff()
    pauses = []
    for _ in range(8):
        backoff.failed("a:1", now=100.0)
        pauses.append(backoff.seconds_left("a:1", now=100.0))
    assert [round(pause, 3) for pause in pauses[:4]] == [0.1, 0.2, 0.4, 0.5]
    assert pauses[-1] == BACKOFF_SECONDS_MAX


def test_the_pauses_between_tries_of_one_request_grow_to_half_a_second() -> None:
    assert [retry_pause_seconds(count) for count in (0, 1, 2, 3, 1000)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_the_pause_ends() -> None:
    backoff = Backoff()
    backoff.failed("a:1", now=100.0)
    assert backoff.seconds_left("a:1", now=100.0 + BACKOFF_SECONDS_MIN) == 0.0


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
