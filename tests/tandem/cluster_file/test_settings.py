import yaml

from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    LoggingSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tests.support.paths import ROOT

EXAMPLE = ROOT / "cluster.yaml"


def test_the_example_names_every_setting() -> None:
    text = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    for section, record in (
        ("store", StoreSettings),
        ("replication", ReplicationSettings),
        ("broker", BrokerSettings),
        ("coordinator", CoordinatorSettings),
        ("cluster", ClusterSettings),
        ("logging", LoggingSettings),
    ):
        assert list(text[section]) == list(record.__struct_fields__), section
    assert list(text["groups"]["broker-a"]) == list(GroupSettings.__struct_fields__)


def test_there_are_at_most_ninety_settings() -> None:
    records = (
        StoreSettings,
        ReplicationSettings,
        BrokerSettings,
        GroupSettings,
        CoordinatorSettings,
        ClusterSettings,
        LoggingSettings,
    )
    assert sum(len(record.__struct_fields__) for record in records) <= 90


def test_no_two_nodes_share_the_list_and_the_map_of_a_default() -> None:
    one, other = (
        NodeSettings(name=name, group="broker-a", broker_id=1, address="127.0.0.1")
        for name in ("a", "b")
    )
    assert one.reach is not other.reach


def test_a_node_is_known_by_its_address_and_port() -> None:
    node = NodeSettings(name="a", group="g", broker_id=0, address="10.0.0.1", port=5)
    assert node.broker_address == "10.0.0.1:5"
    assert node.is_master
