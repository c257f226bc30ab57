"""A master and its slaves: real stores and services over the simulated network and disks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from ha.classic.config import HAConfig, SlaveNode
from ha.classic.ha_service import HAService
from ha.classic.protocol import REPORT, TRANSFER_HEADER
from node.simulated.network import Machine, NetworkSettings
from node.simulated.virtual_clock import WallClock
from store import MessageStore, PutMessageStatus
from store.machine.errors import ConnectionLost
from store.machine.network import Stream
from tandem.wire.message import Host
from tests.ha.world import World, put, read_whole_log
from tests.support.patience import PATIENCE_SECONDS

HA_PORT = 10912
MASTER_IP = "127.0.0.1"
SLAVE_IPS = {"a": "127.0.0.2", "b": "127.0.0.3"}

SETTINGS: dict[str, Any] = {
    "ha_transfer_batch_size_bytes": 4096,
    "ha_reconnect_interval_ms": 1000,
}


def master_config(**changes: object) -> HAConfig:
    config = HAConfig(
        name="master",
        address=MASTER_IP,
        ha_port=HA_PORT,
        slaves=tuple(SlaveNode(name, ip) for name, ip in SLAVE_IPS.items()),
        **SETTINGS,
    )
    return msgspec.structs.replace(config, **changes)


def slave_config(name: str, **changes: object) -> HAConfig:
    config = HAConfig(
        name=name,
        address=SLAVE_IPS[name],
        ha_port=HA_PORT,
        master=Host(MASTER_IP, HA_PORT),
        **SETTINGS,
    )
    return msgspec.structs.replace(config, **changes)


class Replica:
    """One node while it runs."""

    def __init__(self, store: MessageStore, service: HAService, machine: Machine) -> None:
        self.store = store
        self.service = service
        self.machine = machine

    def why_not_in_sync(self, name: str) -> str | None:
        service = self.service.group_transfer_service
        return service.why_not_in_sync(name, self.store.max_physical_offset)

    @property
    def log(self) -> bytes:
        return read_whole_log(self.store)

    def put(self, body: bytes = b"body", *, queue_id: int = 0) -> int:
        """Put one message; return its end offset."""
        return put(self.store, body, queue_id=queue_id)

    async def put_and_wait(self, body: bytes = b"body") -> tuple[PutMessageStatus, str]:
        """Put one message and wait for its outcome."""
        send, receive = trio.open_memory_channel[tuple[PutMessageStatus, str]](1)
        service = self.service.group_transfer_service
        service.submit(
            self.put(body),
            trio.current_time() + 3.0,
            lambda status, reason: send.send_nowait((status, reason)),
        )
        return await receive.receive()

    async def wait_in_sync(self, *names: str) -> None:
        service = self.service.group_transfer_service
        with trio.fail_after(PATIENCE_SECONDS):
            while not all(
                service.slaves[name].position == self.store.max_physical_offset for name in names
            ):
                await trio.sleep(0.01)


class Nobody:
    """A `ReplicationListener` that does nothing."""

    def __init__(self) -> None:
        self.epochs_opened: list[int] = []

    def opened(self, epoch: int) -> None:
        self.epochs_opened.append(epoch)

    def role_changed(self) -> None: ...

    def answered(self) -> None: ...

    def ended(self, reason: str) -> None: ...


class ClassicWorld(World):
    """The machine room of a master and its slaves."""

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        super().__init__(settings, ips={"master": MASTER_IP, **SLAVE_IPS}, is_fenced=False)

    @asynccontextmanager
    async def running(self, config: HAConfig) -> AsyncIterator[Replica]:
        """Run a node; at the end its store is closed as after a clean stop."""
        is_slave = config.master is not None
        async with self.running_store(config.name, is_slave=is_slave) as (store, machine, nursery):
            service = HAService(config, store, machine, wall_clock_ms=WallClock().now_ms)
            await nursery.start(service.run, Nobody())
            yield Replica(store, service, machine)

    def fill(self, name: str, bodies: list[bytes]) -> bytes:
        """Put messages into a store that is not running; return its log."""
        with self.open_store(name, is_slave=False) as store:
            put(store, *bodies)
            return read_whole_log(store)


open_world = ClassicWorld.open


@asynccontextmanager
async def open_pair() -> AsyncIterator[tuple[ClassicWorld, Replica, Replica]]:
    """A master and its slave `a`, both empty and running."""
    async with (
        open_world() as world,
        world.running(master_config()) as master,
        world.running(slave_config("a")) as a,
    ):
        yield world, master, a


# What the other side of the wire would do


async def receive_exactly(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await stream.receive_some(size - len(data))
        if not part:
            raise ConnectionLost("end of stream")
        data += part
    return data


async def receive_frame(stream: Stream) -> tuple[int, bytes]:
    with trio.fail_after(PATIENCE_SECONDS):
        offset, size = TRANSFER_HEADER.unpack(await receive_exactly(stream, TRANSFER_HEADER.size))
        return offset, await receive_exactly(stream, size)


async def receive_report(stream: Stream) -> int:
    with trio.fail_after(PATIENCE_SECONDS):
        (report,) = REPORT.unpack(await receive_exactly(stream, REPORT.size))
        assert isinstance(report, int)
        return report


async def dial(world: ClassicWorld, ip: str = SLAVE_IPS["a"]) -> Stream:
    return await world.network.machine(ip).connect(MASTER_IP, HA_PORT, source=None)
