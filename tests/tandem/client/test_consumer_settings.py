import pytest

from tandem.client.consumer_settings import ConsumerSettings
from tandem.client.pull_flow import Start
from tandem.wire.errors import ArgumentError


@pytest.mark.parametrize(
    "settings",
    [
        {"message_model": "cluster"},
        {"start": "begin"},
        {"pull_batch_size": 0},
        {"commit_interval_ms": 0},
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object]) -> None:
    with pytest.raises(ArgumentError) as caught:
        ConsumerSettings("g", **settings)  # type: ignore[arg-type]
    assert caught.value.names == tuple(settings)


def test_where_a_group_begins_has_rocketmqs_names() -> None:
    begins = [ConsumerSettings("g", start=each) for each in ("earliest", "latest", 1_700)]
    assert [each.first_offset for each in begins] == [Start.EARLIEST, Start.LATEST, 1_700]
    assert [each.consume_from_where for each in begins] == [
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ]


@pytest.mark.parametrize(
    ("settings", "reconsume_times", "words"),
    [
        (ConsumerSettings("g", max_reconsume_times=0), 0, "a dead letter, in %DLQ%g"),
        (ConsumerSettings("g", max_reconsume_times=2), 1, "comes again, 1 more times at most"),
        (ConsumerSettings("g", max_reconsume_times=2), 2, "does not come again"),
        (ConsumerSettings("g"), 5, "as often as its group's settings say"),
        (ConsumerSettings("g", orderly=True), 5, "comes again"),
        (ConsumerSettings("g", message_model="broadcasting", max_reconsume_times=0), 9, "again"),
    ],
)
def test_what_becomes_of_a_message_that_failed_is_said_as_it_is(
    settings: ConsumerSettings, reconsume_times: int, words: str
) -> None:
    assert words in settings.fate_of_failed(reconsume_times)
