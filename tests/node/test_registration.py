from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from node.registration import Registration
from node.route_table import RouteTable
from node.topic_config_table import TopicConfigTable
from store.table_file import TableFile
from tandem.wire.request_headers import TopicConfig
from tests.node.world import MASTER, SLAVE_1, cluster_config, open_world
from tests.support.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


def topic(name: str) -> TopicConfig:
    return TopicConfig(topic_name=name)


async def test_a_node_registers_with_itself_and_its_peers_and_tells_of_new_topics(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world:
        await world.start("a0")
        routes = RouteTable(20)
        topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1, lambda: None)
        topics.update(topic("T"), topic("U"))
        registration = Registration(
            config.node("a1"), world.network.machine(SLAVE_1), routes, topics
        )
        async with trio.open_nursery() as nursery, world.client(MASTER) as master:
            nursery.start_soon(registration.run)
            await trio.sleep(1)
            here = routes.route("T")
            assert here is not None
            assert here.broker_datas[0].broker_addrs == {1: f"{SLAVE_1}:10911"}
            there = await master.route("BenchmarkTest")
            assert there == {0: f"{MASTER}:10911", 1: f"{SLAVE_1}:10911"}
            topics.update(topic("Fresh"))
            registration.topics_changed()
            assert routes.route("Fresh") is not None
            nursery.cancel_scope.cancel()


async def test_a_node_whose_peers_are_down_knows_itself(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world:
        routes = RouteTable(20)
        topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1, lambda: None)
        topics.update(topic("T"), topic("U"))
        registration = Registration(
            config.node("a1"), world.network.machine(SLAVE_1), routes, topics
        )
        with trio.move_on_after(60):
            await registration.run()
        assert routes.expire(trio.current_time()) == []
        assert routes.route("T") is not None
