import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.shadow.errors import ShadowCause, ShadowError
from node.shadow.master_place import (
    HA_PORT_DEFAULT,
    LogRange,
    address_of,
    chosen_broker,
    master_of,
    place_of,
    range_of,
)
from tandem.wire.message import Host
from tandem.wire.route import BrokerData, ClusterInfo

HERE = Host("10.0.0.1", 10912)


def cluster(**brokers: dict[int, str]) -> ClusterInfo:
    return ClusterInfo(
        {
            name: BrokerData(broker_addrs=addresses, broker_name=name)
            for name, addresses in brokers.items()
        }
    )


TWO = cluster(a={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, b={0: "10.0.0.3:10911"})


def test_the_broker_at_the_address_is_followed() -> None:
    assert chosen_broker(TWO, "", HERE) == "a"
    assert chosen_broker(TWO, "", Host("10.0.0.2", 1)) == "a"
    assert chosen_broker(TWO, "b", HERE) == "b"


@pytest.mark.parametrize(
    ("brokers", "wanted", "host", "cause"),
    [
        (TWO, "c", HERE, ShadowCause.UNKNOWN_BROKER),
        (TWO, "", Host("10.9.9.9", 1), ShadowCause.WHICH_BROKER),
        (
            cluster(a={0: "10.0.0.1:1"}, b={0: "10.0.0.1:2"}),
            "",
            HERE,
            ShadowCause.WHICH_BROKER,
        ),
        (cluster(), "", HERE, ShadowCause.WHICH_BROKER),
    ],
)
def test_what_is_not_clear_is_refused(
    brokers: ClusterInfo, wanted: str, host: Host, cause: ShadowCause
) -> None:
    with pytest.raises(ShadowError) as caught:
        chosen_broker(brokers, wanted, host)
    assert caught.value.cause is cause


def test_who_has_to_choose_is_said_between_what() -> None:
    with pytest.raises(ShadowError, match="its brokers are a, b: say which one with --broker"):
        chosen_broker(TWO, "", Host("10.9.9.9", 1))


def test_the_master_is_the_broker_with_id_0() -> None:
    assert master_of(TWO, "a") == Host("10.0.0.1", 10911)
    assert master_of(TWO, "c") is None
    assert master_of(cluster(a={1: "10.0.0.2:10911"}), "a") is None
    assert master_of(cluster(a={0: "nonsense"}), "a") is None


def test_a_broker_says_itself_where_its_slaves_dial_and_how_large_its_files_are() -> None:
    said = {
        "brokerIP2": "10.1.0.1",
        "haListenPort": "20912",
        "mappedFileSizeCommitLog": "1048576",
        "maxMessageSize": "65536",
    }
    place = place_of("a", Host("10.0.0.1", 10911), said)
    assert place.ha == Host("10.1.0.1", 20912)
    assert (place.commit_log_file_bytes, place.max_message_bytes) == (1_048_576, 65_536)


@pytest.mark.parametrize("port", ["", "x", "-1", "0", "70000", "9" * 5000])
def test_what_it_does_not_say_has_rocketmqs_default(port: str) -> None:
    place = place_of("a", Host("10.0.0.1", 10911), {"haListenPort": port, "maxMessageSize": port})
    assert place.ha == Host("10.0.0.1", HA_PORT_DEFAULT)
    assert place.max_message_bytes in (0, 70_000)


def test_a_runtime_info_says_what_the_log_holds() -> None:
    said = {"commitLogMinOffset": "100", "commitLogMaxOffset": "300"}
    assert range_of(said) == LogRange(100, 300)
    assert range_of({**said, "commitLogMaxOffset": "99"}) is None
    assert range_of({**said, "commitLogMinOffset": "-1"}) is None
    assert range_of({"commitLogMaxOffset": "300"}) is None


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_has_port_0(text: str) -> None:
    assert 0 <= address_of(text).port <= 65_535
