import pytest

from tandem.client.ack import Ack
from tandem.spark.errors import OptionError
from tandem.spark.option_reader import TLS_OPTIONS
from tandem.spark.sink.options import OPTIONS, SinkOptions, option_reader, read_options


def read(**given: str) -> SinkOptions:
    raw = {"nameServers": "h:1;i:2"} | given
    reader = option_reader({name.lower(): value for name, value in raw.items()})
    options = read_options(reader)
    reader.finish()
    return options


def test_little_has_to_be_said() -> None:
    assert read() == SinkOptions(("h:1", "i:2"))
    assert read().ack is Ack.REPLICATED
    assert read(nameServers="h:1,i:2").name_servers == ("h:1", "i:2")


def test_everything_can_be_said() -> None:
    options = read(
        topic="t",
        ack="replicated-flushed",
        writeId="w",
        sendMsgTimeoutMs="1",
        attemptTimeoutMs="2",
        compressOverBytes="3",
        compression="zlib",
        batchMaxBytes="4",
        maxInFlightBytes="5",
        maxMessageSizeBytes="6",
        producerGroup="g",
        accessKey="a",
        secretKey="s",
    )
    assert options == SinkOptions(
        ("h:1", "i:2"), "t", Ack.REPLICATED_FLUSHED, "w", 1, 2, 3, "zlib", 4, 5, 6, "g", "a", "s"
    )
    assert len(OPTIONS) == 15 + len(TLS_OPTIONS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nameServers": ";"}, "no name server"),
        ({"nameServers": "h"}, "nameServers"),
        ({"nameServer": "h:1"}, "the same option"),
        ({"ack": "all"}, "replicated or async or replicated-flushed"),
        ({"acks": "all"}, "did you mean ack"),
        ({"topic": " "}, "topic is empty"),
        ({"sendMsgTimeoutMs": "soon"}, "whole number"),
        ({"batchMaxBytes": "0"}, "at least 1"),
        ({"compression": "zlib"}, "give both"),
        ({"compression": "gzip", "compressOverBytes": "1"}, "expected zlib"),
        ({"accessKey": "a"}, "give both"),
        ({"path": "t"}, "unknown option 'path'"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read(**given)


def test_every_problem_is_said_at_once() -> None:
    reader = option_reader({"ack": "all", "batchmaxbytes": "x", "colour": "red"})
    read_options(reader)
    with pytest.raises(OptionError, match=r"colour.*nameServers|nameServers.*colour") as caught:
        reader.finish()
    assert "ack=" in str(caught.value)
    assert "batchMaxBytes=" in str(caught.value)


def test_what_spark_adds_to_a_stream_is_passed_over() -> None:
    assert read(checkpointLocation="/c", queryName="q") == read()
