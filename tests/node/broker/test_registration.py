import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from node.broker.registration import KNOWN_SECONDS_MAX, PIECE_TOPICS_MAX, Registration
from node.name_server.name_server import NameServer
from node.name_server.newcomers import Newcomers
from node.name_server.route_table import RouteTable
from node.security.guard import Guard
from node.simulated.disk import SimulatedDisk
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from node.tables.topic_config_table import (
    TOPIC_CHARACTERS_MAX,
    TOPICS_MAX,
    TopicConfigTable,
)
from store.machine.table_file import TableFile
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.frame_buffer import FRAME_BYTES_MAX
from tandem.wire.name_server_headers import QueryDataVersionResponseHeader
from tandem.wire.request_headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegistrationPart,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.route import encode_json_body
from tests.node.world import MASTER, SLAVE_1, cluster_config, fenced_cluster, open_world
from tests.support.logged import logged


def topic(name: str) -> TopicConfig:
    return TopicConfig(topic_name=name)


async def test_a_node_registers_with_itself_and_its_peers_and_tells_of_new_topics(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world:
        await world.start("a0")
        routes = RouteTable(20)
        topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
        topics.update(topic("T"), topic("U"))
        registration = Registration(
            config.node("a1"),
            world.network.machine(SLAVE_1),
            routes,
            Newcomers(),
            topics,
            lambda: None,
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


class CountingRoutes(RouteTable):
    """How many topics are looked at for each registration."""

    def __init__(self) -> None:
        super().__init__(20)
        self.counts: list[int] = []

    def register(
        self,
        header: RegisterBrokerRequestHeader,
        topics: TopicConfigSerializeWrapper,
        removed: Collection[str] = (),
        *,
        connection: object | None,
        now: float,
    ) -> RegisterBrokerResponseHeader:
        self.counts.append(len(topics.topic_config_table))
        return super().register(header, topics, removed, connection=connection, now=now)


async def test_one_topic_more_is_one_topic_for_the_routes_of_this_node(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world:
        routes = CountingRoutes()
        topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
        topics.update(*(topic(f"T{number}") for number in range(3_000)))
        registration = Registration(
            config.node("a1"),
            world.network.machine(SLAVE_1),
            routes,
            Newcomers(),
            topics,
            lambda: None,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            await trio.sleep(1)
            assert routes.counts == [3_000]
            for number in range(5):
                topics.update(topic(f"Fresh{number}"))
                assert routes.route(f"Fresh{number}") is not None
            assert routes.counts[1:] == [1] * 5
            topics.delete("Fresh3")
            assert routes.route("Fresh3") is None
            registration.master_address_changed("127.0.0.9:10911")
            topics.update(topic("T7"), topic("Last"))
            assert routes.route("Last") is not None
            assert routes.counts[6:] == [3_004, 3_004, 1]
            routes.unregister(_unregistered(routes, config.node("a1").node.broker_address))
            topics.update(topic("Again"))
            assert routes.route("T5") is not None
            assert routes.counts[-1] == 3_006
            nursery.cancel_scope.cancel()


def _unregistered(routes: RouteTable, address: str) -> UnregisterBrokerRequestHeader:
    (cluster,) = routes.cluster_info().cluster_addr_table
    return UnregisterBrokerRequestHeader("broker-a", address, cluster, 1)


async def test_a_node_whose_peers_are_down_knows_itself(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world:
        routes = RouteTable(20)
        topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
        topics.update(topic("T"), topic("U"))
        registration = Registration(
            config.node("a1"),
            world.network.machine(SLAVE_1),
            routes,
            Newcomers(),
            topics,
            lambda: None,
        )
        with trio.move_on_after(60):
            await registration.run()
        assert routes.expire(trio.current_time()) == []
        assert routes.route("T") is not None


async def test_a_change_of_role_is_known_to_all_name_servers_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = fenced_cluster(tmp_path)
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    peers = {name: name_server(config.node(name)) for name in ("a2", "a3")}
    topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
    topics.update(topic("T"), topic("U"))
    here = RouteTable(20)
    registration = Registration(
        config.node("a1"), network.machine(MASTER), here, Newcomers(), topics, lambda: None
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        for name, peer in peers.items():
            address = config.node(name).node.address
            await nursery.start(peer.run, network.machine(address))
        nursery.start_soon(registration.run)
        await trio.sleep(1)
        tables = [here, *(peer.routes for peer in peers.values())]
        assert [addresses_of(table) for table in tables] == [{1: "10.0.0.1:10911"}] * 3
        registration.role_changed(is_master=True, epoch=7)
        await trio.sleep(0.05)
        assert [addresses_of(table) for table in tables] == [{0: "10.0.0.1:10911"}] * 3
        routes = [table.route("T") for table in tables]
        assert [route and route.broker_datas[0].master_epoch for route in routes] == [7] * 3
        registration.leave()
        registration.topics_changed()
        await trio.sleep(0.05)
        assert [table.route("T") for table in tables] == [None] * 3
        nursery.cancel_scope.cancel()


async def test_a_peer_that_was_down_is_dialled_when_it_registers_itself(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = fenced_cluster(tmp_path)
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
    topics.update(topic("T"), topic("U"))
    newcomers = Newcomers()
    registration = Registration(
        config.node("a1"),
        network.machine(MASTER),
        RouteTable(20),
        newcomers,
        topics,
        lambda: None,
    )
    peer = name_server(config.node("a2"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        nursery.start_soon(registration.run)
        await trio.sleep(1.5)
        await nursery.start(peer.run, network.machine("10.0.0.2"))
        newcomers.add("10.0.0.2:10911")
        await trio.sleep(0.05)
        assert addresses_of(peer.routes) == {1: "10.0.0.1:10911"}
        nursery.cancel_scope.cancel()


async def test_a_change_is_known_when_all_name_servers_that_are_up_have_it(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """a3 is down all the time; a2 does not answer any more in the end."""
    config = fenced_cluster(tmp_path)
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
    topics.update(topic("T"), topic("U"))
    sent: list[float] = []
    registration = Registration(
        config.node("a1"),
        network.machine(MASTER),
        RouteTable(20),
        Newcomers(),
        topics,
        lambda: sent.append(trio.current_time()),
    )
    peer = name_server(config.node("a2"))
    known: list[bool] = []

    def note() -> None:
        known.append(peer.routes.route("New") is not None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        await nursery.start(peer.run, network.machine("10.0.0.2"))
        nursery.start_soon(registration.run)
        await trio.sleep(1)
        registration.when_known(note)
        assert (known, sent) == ([False], []), "nothing has changed: at once"
        topics.update(topic("New"))
        registration.when_known(note)
        assert known == [False]
        await trio.sleep(0.2)
        assert known == [False, True]
        assert len(sent) == 1
        network.stall("10.0.0.2", MASTER)
        topics.update(topic("Newer"))
        began = trio.current_time()
        registration.when_known(note)
        await trio.sleep(1.5)
        assert len(known) == 3
        assert sent[1] - began == pytest.approx(KNOWN_SECONDS_MAX, abs=0.01)
        assert any("a2" in map(str, line) for line in logged(caplog, "node.broker.registration"))
        nursery.cancel_scope.cancel()


def name_server(config: NodeConfig) -> NameServer:
    return NameServer(config, Guard(config, random.Random(3)), SimulatedDisk())


def addresses_of(table: RouteTable) -> dict[int, str]:
    route = table.route("T")
    return {} if route is None else route.broker_datas[0].broker_addrs


async def test_an_address_for_clients_is_told_to_all_name_servers_at_once_and_taken_back(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = fenced_cluster(tmp_path)
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    peer = name_server(config.node("a2"))
    topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
    topics.update(topic("T"), topic("U"))
    here = RouteTable(20)
    registration = Registration(
        config.node("a1"), network.machine(MASTER), here, Newcomers(), topics, lambda: None
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        await nursery.start(peer.run, network.machine("10.0.0.2"))
        nursery.start_soon(registration.run)
        registration.role_changed(is_master=True, epoch=7)
        await trio.sleep(1)
        for address, told in (("10.0.0.100:10911", "10.0.0.100:10911"), (None, "10.0.0.1:10911")):
            registration.master_address_changed(address)
            await trio.sleep(0.05)
            tables = (here, peer.routes)
            assert [addresses_of(table) for table in tables] == [{0: told}] * 2
        nursery.cancel_scope.cancel()


class Registered:
    """Node a1 that registers with a2, and what a2 gets."""

    def __init__(self, tmp_path: Path, *names: str) -> None:
        self.config = fenced_cluster(tmp_path)
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.peer = name_server(self.config.node("a2"))
        self.topics = TopicConfigTable(TableFile(SimulatedDisk(), "t.json"), lambda: 1)
        self.topics.update(*map(topic, names))
        self.registration = Registration(
            self.config.node("a1"),
            self.network.machine(MASTER),
            RouteTable(20),
            Newcomers(),
            self.topics,
            lambda: None,
        )
        self.bytes_max = 0
        self.got: list[tuple[RegistrationPart | None, list[str], list[str]]] = []
        real = self.peer.routes.register

        def register(header: Any, topics: Any, removed: Any, **how: Any) -> Any:  # noqa: ANN401
            self.got.append((header.part, sorted(topics.topic_config_table), list(removed)))
            self.bytes_max = max(self.bytes_max, len(encode_json_body(topics)))
            return real(header, topics, removed, **how)

        self.peer.routes.register = register  # type: ignore[assignment,method-assign]

    def taken(self) -> list[tuple[RegistrationPart | None, list[str], list[str]]]:
        """Return what has come since the last call."""
        got, self.got = self.got, []
        return got

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timeline.run)
            await nursery.start(self.peer.run, self.network.machine("10.0.0.2"))
            nursery.start_soon(self.registration.run)
            yield
            nursery.cancel_scope.cancel()


async def test_a_table_is_registered_once_and_then_what_has_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    node = Registered(tmp_path, "T", "U")
    async with node.running():
        await trio.sleep(1)
        assert node.taken() == [(RegistrationPart.FIRST, ["T", "U"], [])]
        await trio.sleep(11)
        assert node.taken() == [(RegistrationPart.CHANGE, [], [])] * 2
        node.topics.update(topic("New"))
        await trio.sleep(0.2)
        assert node.taken() == [(RegistrationPart.CHANGE, ["New"], [])]
        node.topics.delete("U")
        await trio.sleep(0.2)
        assert node.taken() == [(RegistrationPart.CHANGE, [], ["U"])]
        assert sorted(node.peer.routes.topics()) == ["New", "T"]
        node.registration.role_changed(is_master=True, epoch=7)
        await trio.sleep(0.2)
        assert node.taken() == [(RegistrationPart.FIRST, ["New", "T"], [])]


async def test_a_name_server_that_has_forgotten_the_node_gets_all_anew(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    node = Registered(tmp_path, "T", "U")
    async with node.running():
        await trio.sleep(1)
        assert node.peer.routes.expire(trio.current_time() + 100)
        assert node.peer.routes.topics() == []
        await trio.sleep(7)
        assert sorted(node.peer.routes.topics()) == ["T", "U"]


async def test_a_name_server_of_an_earlier_version_gets_the_whole_table_each_time(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "node.name_server.name_server_admin.QueryDataVersionResponseHeader",
        lambda changed, _: QueryDataVersionResponseHeader(changed),
    )
    node = Registered(tmp_path, "T", "U")
    async with node.running():
        await trio.sleep(1)
        node.topics.delete("U")
        node.topics.update(topic("New"))
        await trio.sleep(0.2)
        assert node.taken()[-1] == (None, ["New", "T"], [])
        assert sorted(node.peer.routes.topics()) == ["New", "T"]


async def test_no_topic_is_without_a_route_while_the_pieces_come_again(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.broker.registration.PIECE_TOPICS_MAX", 2)
    node = Registered(tmp_path, *"ABCDE")
    known: list[int] = []
    register = node.peer.routes.register

    def noting(*given: Any, **how: Any) -> Any:  # noqa: ANN401
        answer = register(*given, **how)
        known.append(len(node.peer.routes.topics()))
        return answer

    node.peer.routes.register = noting  # type: ignore[method-assign]
    async with node.running():
        await trio.sleep(1)
        assert known == [2, 4, 5]
        node.registration.role_changed(is_master=True, epoch=7)
        await trio.sleep(0.2)
        assert known[3:] == [5, 5, 5]
        node.topics.delete("C")
        node.registration.role_changed(is_master=True, epoch=8)
        await trio.sleep(0.2)
        assert sorted(node.peer.routes.topics()) == list("ABDE")


@pytest.mark.slow
async def test_as_many_topics_with_names_as_long_as_there_can_be_are_registered_in_pieces(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    names = [f"{number:06d}".rjust(TOPIC_CHARACTERS_MAX, "t") for number in range(TOPICS_MAX)]
    node = Registered(tmp_path, *names)
    async with node.running():
        await trio.sleep(5)
        got = node.taken()
        assert [part for part, _, _ in got[:2]] == [RegistrationPart.FIRST, RegistrationPart.NEXT]
        assert max(len(listed) for _, listed, _ in got) == PIECE_TOPICS_MAX
        assert sorted(node.peer.routes.topics()) == sorted(names)
        assert node.bytes_max < FRAME_BYTES_MAX // 30
        node.topics.delete(names[5])
        await trio.sleep(1)
        assert node.taken()[0] == (RegistrationPart.CHANGE, [], [names[5]])
        assert names[5] not in node.peer.routes.topics()
