import re

import pytest

from tandem.client.consumer_settings import ConsumerSettings
from tandem.client.pull_flow import Start


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"message_model": "cluster"}, "message_model is 'cluster'; it is \"clustering\""),
        ({"start": "begin"}, 'start is \'begin\'; it is "earliest", "latest", or a time'),
        ({"pull_batch_size": 0}, "pull_batch_size is 0; it is 1 or more"),
        ({"commit_interval_ms": 0}, "commit_interval_ms is 0; it is 1 or more"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ConsumerSettings("g", **settings)  # type: ignore[arg-type]


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
