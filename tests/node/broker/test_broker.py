"""The broker alone, before a replication that a test controls; whole nodes are tested beside it."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.results import Ack, PutWait
from node.broker.broker import Broker
from node.config.part_configs import store_config
from node.figures.node_report import NodeReport
from node.name_server.name_server import NameServer
from node.receive.pop_service import PopService
from node.security.guard import Guard
from node.simulated.disk import SimulatedDisk
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline, WallClock
from node.tables.plain_tables import PlainFiles, PlainTables
from store import MessageStore, PutMessageStatus
from store.machine.machine import Machine
from store.machine.service_manager import GETS_ON, ServiceManager
from tandem.wire.message import Host
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import AUTO_CREATE_TOPIC
from tests.node.doubles import FakeReplication
from tests.node.world import CLIENT, MASTER, Caller, bodies, cluster_config, open_caller


class Served:
    """A broker that serves, its replication, and a client of it."""

    def __init__(self, directory: Path) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.config = cluster_config(directory).node("a0")
        self.disk = SimulatedDisk()
        self.machine = Machine(
            disk=self.disk,
            network=self.network.machine(MASTER),
            wall_clock_ms=WallClock().now_ms,
            boottime=trio.current_time,
            boot_id="b",
            random=random.Random(2),
        )
        self.names = NameServer(
            self.config, Guard(self.config, self.machine.random), SimulatedDisk()
        )
        self.report = NodeReport()
        self.replication = FakeReplication()
        self.tables = PlainTables(PlainFiles(self.machine.disk, "/s", self.machine.wall_clock_ms))
        self.stop = trio.Event()
        self.has_ended = trio.Event()
        self.broker: Broker
        self.client: Caller

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        store = MessageStore.open(
            store_config(self.config),
            disk=self.machine.disk,
            wall_clock_ms=self.machine.wall_clock_ms,
            store_host=Host(MASTER, 10911),
            is_slave=False,
        )
        with store:
            self.broker = Broker(
                self.config,
                self.machine,
                self.names,
                store,
                self.tables,
                self.replication,
                self.report,
            )
            try:
                await self.broker.serve(self.stop, task_status.started)
            finally:
                self.broker.save()
        self.has_ended.set()


@asynccontextmanager
async def open_broker(directory: Path) -> AsyncIterator[Served]:
    served = Served(directory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.timeline.run)
        await nursery.start(served.run)
        async with open_caller(served.network.machine(CLIENT), MASTER, 10911) as served.client:
            yield served
        nursery.cancel_scope.cancel()


async def test_it_serves_what_it_takes(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_broker(tmp_path) as served:
        assert (await served.client.send(b"one")).code == 0
        assert bodies(await served.client.pull()) == [b"one"]


async def test_what_was_put_again_is_on_the_disk_before_tables_say_so_at_a_stop(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(PopService, "close", lambda _: calls.append("pop"))
    monkeypatch.setattr(PlainTables, "save", lambda _: calls.append("tables"))
    async with open_broker(tmp_path):
        assert not calls
    assert calls == ["pop", "tables"]


async def test_it_makes_its_topics_and_registers_when_it_opens(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_broker(tmp_path) as served:
        assert served.tables.topics.get(AUTO_CREATE_TOPIC) is not None
        assert await served.client.route(AUTO_CREATE_TOPIC) == {0: f"{MASTER}:10911"}


async def test_queues_are_brought_to_the_disk_at_a_stop_while_the_service_manager_waits(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    said: list[str] = []

    class Manager(ServiceManager):
        def say(self, state: str) -> bool:
            said.append(state)
            return True

    served = Served(tmp_path)
    served.machine = msgspec.structs.replace(served.machine, service_manager=Manager({}, 1))
    done: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.timeline.run)
        await nursery.start(served.run)
        async with open_caller(served.network.machine(CLIENT), MASTER, 10911) as client:
            for queue_id in range(4):
                assert (await client.send(b"x", queue_id=queue_id)).code == 0
        served.disk.on_event = done.append
        served.disk.sync_seconds = lambda: 100.0
        served.stop.set()
        await served.has_ended.wait()
        nursery.cancel_scope.cancel()
    assert [event for event in done if event.startswith("sync below")]
    assert said.count(GETS_ON) >= 4


async def test_a_change_of_role_changes_the_route(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_broker(tmp_path) as served:
        served.replication.epoch = 5
        served.broker.role_changed()
        route = served.names.routes.route(AUTO_CREATE_TOPIC)
        assert route is not None
        assert route.broker_datas[0].master_epoch == 5


async def test_answers_leave_when_replication_gives_them(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class SlowReplication(FakeReplication):
        """Answers every put a second later, as group transfer does."""

        def __init__(self) -> None:
            super().__init__()
            self.put_waits[Ack.REPLICATED] = PutWait(self._submit, lambda: 0, 3.0)
            self.waiting: list[object] = []

        def _submit(self, end: int, deadline: float, done: object) -> None:
            self.waiting.append(done)

    served = Served(tmp_path)
    slow = served.replication = SlowReplication()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.timeline.run)
        await nursery.start(served.run)
        async with open_caller(served.network.machine(CLIENT), MASTER, 10911) as client:
            answers: list[int] = []

            async def send() -> None:
                answers.append((await client.send(b"x")).code)

            nursery.start_soon(send)
            await trio.sleep(1)
            assert answers == []
            for done in slow.waiting:
                done(PutMessageStatus.PUT_OK, "")  # type: ignore[operator]
            served.broker.answered()
            await trio.sleep(0.1)
            assert answers == [0]
        nursery.cancel_scope.cancel()


async def test_in_quarantine_it_is_in_no_route_and_answers_what_is_about_itself(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_broker(tmp_path) as served:
        served.replication.is_quarantined = True
        served.broker.role_changed()
        answer = await served.client.pull()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == "in quarantine"
        assert (await served.client.call(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        assert served.names.routes.route(AUTO_CREATE_TOPIC) is None


@pytest.mark.parametrize("by_replication", [True, False])
async def test_its_time_is_over_when_somebody_says_so(
    tmp_path: Path, autojump_clock: MockClock, *, by_replication: bool
) -> None:
    async with open_broker(tmp_path) as served:
        assert (await served.client.send(b"kept")).code == 0
        if by_replication:
            served.broker.ended("its log has to be cut")
        else:
            served.stop.set()
        with trio.fail_after(5):
            await served.has_ended.wait()
        assert served.broker.ended_because == ("its log has to be cut" if by_replication else "")
