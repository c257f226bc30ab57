import json

import pytest

from tandem.spark.commitlog.offsets import LATEST, Mark
from tandem.spark.commitlog.options import OPTIONS, ScanOptions, parse_options
from tandem.spark.errors import OptionError


def test_defaults_read_everything_and_fail_on_damage() -> None:
    assert parse_options({"path": "data/a"}) == ScanOptions(paths=("data/a",))


def test_every_option_is_understood_in_lower_case_as_spark_hands_it_over() -> None:
    options = parse_options(
        {
            "paths": '["data/a", "data/b"]',
            "subscribe": "orders, returns",
            "queues": "0,3",
            "startingtimestamp": "1700000000000",
            "endingtimestamp": "1700000000001",
            "timestampmargin": "0",
            "commitlogdirectories": "a/log, b/log",
            "consumequeues": "never",
            "startingoffsets": "latest",
            "endingoffsets": '{"data/a": 5}',
            "maxbytespertrigger": "1000",
            "failondataloss": "false",
            "includeunconfirmed": "true",
            "ignoremissingtopics": "true",
            "columns": "topic,error",
            "decompress": "true",
            "includesystemtopics": "TRUE",
            "onerror": "row",
            "checkcrc": "false",
            "splitsizebytes": "8192",
            "tags": "new || paid",
        }
    )
    assert options == ScanOptions(
        paths=("data/a", "data/b"),
        topics=frozenset({"orders", "returns"}),
        queues=frozenset({0, 3}),
        start_ms=1_700_000_000_000,
        end_ms=1_700_000_000_001,
        margin_ms=0,
        commit_log_directories=("a/log", "b/log"),
        consume_queues="never",
        starting=LATEST,
        ending={"data/a": Mark(5)},
        trigger_bytes=1000,
        fail_on_data_loss=False,
        with_unconfirmed=True,
        ignore_missing_topics=True,
        columns=("topic", "error"),
        decompress=True,
        with_system_topics=True,
        on_error="row",
        check_crc=False,
        split_bytes=8192,
        tags=frozenset({"new", "paid"}),
    )


def test_an_unknown_option_is_refused_with_the_known_ones_and_a_guess() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"path": "a", "startTimestamp": "1"})
    assert caught.value.names == ("startTimestamp",)
    assert "did you mean startingTimestamp?" in str(caught.value)
    assert all(name in str(caught.value) for name in OPTIONS)


def test_all_problems_are_told_together() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(
            {
                "topic": "a",
                "subscribePattern": "(",
                "queues": "one",
                "startingTimestamp": "5",
                "endingTimestamp": "4",
                "onError": "skip",
                "checkCrc": "maybe",
                "splitSizeBytes": "1",
                "columns": " ",
            }
        )
    assert set(caught.value.names) == {
        *("path", "topic", "subscribePattern", "queues", "endingTimestamp", "startingTimestamp"),
        *("onError", "checkCrc", "splitSizeBytes", "columns"),
    }
    assert all(name in str(caught.value) for name in caught.value.names)


def test_a_time_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"path": "a", "startingTimestamp": "today"})
    assert caught.value.names == ("startingTimestamp",)


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="error, topic") as caught:
        parse_options({"path": "a", "columns": "topic, error,topic,keys,error"})
    assert caught.value.names == ("columns",)


@pytest.mark.parametrize("chosen", [{"topic": "a,b"}, {"subscribepattern": "a|b"}])
def test_a_body_schema_is_of_topics_that_are_read(chosen: dict[str, str]) -> None:
    for topics, is_good in (("ab", True), ("ac", False)):
        schema = json.dumps(dict.fromkeys(topics, "n long"))
        raw = {"path": "p", "bodyschema": schema, **chosen}
        if is_good:
            assert parse_options(raw).body_schema == schema
            continue
        with pytest.raises(OptionError) as caught:
            parse_options(raw)
        assert caught.value.names == ("bodySchema",)
