import pytest

from tandem.client.ack import Ack
from tandem.client.cluster_access import ClusterAccess
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
    assert read() == SinkOptions(ClusterAccess("h:1;i:2"))
    assert read().ack is Ack.REPLICATED
    assert read(nameServers="h:1,i:2").access.addresses == ("h:1", "i:2")


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
        signatures="any",
    )
    assert options == SinkOptions(
        ClusterAccess("h:1;i:2", "a", "s", signatures="any"),
        "t",
        Ack.REPLICATED_FLUSHED,
        "w",
        1,
        2,
        3,
        "zlib",
        4,
        5,
        6,
        "g",
    )
    assert len(OPTIONS) == 17 + len(TLS_OPTIONS)


def test_written_batches_are_known_where_the_topic_is() -> None:
    assert read(topic="t", skipCommittedBatches="true").skip_committed
    assert not read(skipCommittedBatches="false").skip_committed
    with pytest.raises(OptionError) as caught:
        read(skipCommittedBatches="true")
    assert caught.value.names == ("skipCommittedBatches", "topic")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"nameServers": ";"}, ["nameServers"]),
        ({"nameServers": "h"}, ["nameServers"]),
        ({"nameServer": "h:1"}, ["nameServers", "nameServer"]),
        ({"ack": "all"}, ["ack"]),
        ({"acks": "all"}, ["acks"]),
        ({"topic": " "}, ["topic"]),
        ({"sendMsgTimeoutMs": "soon"}, ["sendMsgTimeoutMs"]),
        ({"batchMaxBytes": "0"}, ["batchMaxBytes"]),
        ({"compression": "zlib"}, ["compression", "compressOverBytes"]),
        ({"compression": "gzip", "compressOverBytes": "1"}, ["compression"]),
        ({"accessKey": "a"}, ["accessKey", "secretKey"]),
        ({"path": "t"}, ["path"]),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], names: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        read(**given)
    assert sorted(caught.value.names) == sorted(names)


def test_every_problem_is_said_at_once() -> None:
    reader = option_reader({"ack": "all", "batchmaxbytes": "x", "colour": "red"})
    read_options(reader)
    with pytest.raises(OptionError) as caught:
        reader.finish()
    assert set(caught.value.names) == {"colour", "nameServers", "ack", "batchMaxBytes"}
    assert all(name in str(caught.value) for name in caught.value.names)


def test_what_spark_adds_to_a_stream_is_passed_over() -> None:
    assert read(checkpointLocation="/c", queryName="q") == read()
