"""The collector stops everything while it looks at all it knows of: large tables are not known."""

import gc
from collections.abc import Callable

import pytest

from node.name_server.route_table import RouteTable
from node.simulated.disk import SimulatedDisk
from node.tables.client_table import ClientTable
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.subscription_group_table import SubscriptionGroupTable
from node.tables.topic_config_table import TopicConfigTable
from store.machine.table_file import TableFile
from tandem.wire.heartbeat import decode_heartbeat
from tandem.wire.request_headers import (
    ConsumerData,
    ConsumerOffsetTableBody,
    HeartbeatData,
    RegisterBrokerRequestHeader,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import Client

COUNT = 500


def topics() -> object:
    table = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1, is_copy=True)
    table.update(*(TopicConfig(topic_name=f"T{number}") for number in range(COUNT)))
    return table


def topics_of_a_master() -> object:
    sent = TopicConfigSerializeWrapper(
        {f"T{n}": TopicConfig(topic_name=f"T{n}") for n in range(COUNT)}
    )
    return decode_json_body(encode_json_body(sent), TopicConfigSerializeWrapper)


def groups() -> object:
    table = SubscriptionGroupTable(TableFile(SimulatedDisk(), "g.json"), lambda: 1, is_copy=True)
    table.update(*(SubscriptionGroupConfig(f"g{number}") for number in range(COUNT)))
    return table


def offsets() -> object:
    table = ConsumerOffsetTable(TableFile(SimulatedDisk(), "o.json"), lambda: 1)
    for number in range(COUNT):
        table.commit(f"g{number}", "T", 0, 7)
    return table


def offsets_of_a_master() -> object:
    sent = ConsumerOffsetTableBody({f"T@g{number}": {0: 7} for number in range(COUNT)})
    return decode_json_body(encode_json_body(sent), ConsumerOffsetTableBody)


def routes() -> object:
    table = RouteTable(20)
    configs = {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(COUNT)}
    header = RegisterBrokerRequestHeader("b", "10.0.0.1:10911", "c", "10.0.0.1:10912", 0)
    table.register(header, TopicConfigSerializeWrapper(configs), connection=None, now=0.0)
    return table


def clients() -> object:
    beat = HeartbeatData(
        "c",
        consumer_data_set=[
            ConsumerData(f"g{number}", subscription_data_set=[SubscriptionData("T")])
            for number in range(COUNT)
        ],
    )
    table = ClientTable()
    table.heartbeat(decode_heartbeat(encode_json_body(beat)), Client({}).connection, 0.0)
    return table


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [topics, topics_of_a_master, groups, offsets, offsets_of_a_master, routes, clients],
    ids=lambda made: made.__name__,
)
async def test_nothing_in_a_table_is_known_to_the_collector_by_the_thousand(
    made: Callable[[], object],
) -> None:
    gc.collect()
    gc.freeze()  # all that tests before this one have left
    try:
        table = made()
        # Twice: of tuples and dictionaries it learns at its first look that nothing is in them.
        gc.collect()
        gc.collect()
        known = len(gc.get_objects())
    finally:
        gc.unfreeze()
    assert known < COUNT / 2, table
