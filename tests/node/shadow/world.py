"""One master by RocketMQ's rules, and shadows of it, on virtual time."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from node.shadow.config import ShadowConfig
from node.shadow.shadow import ShadowStatus, run_shadow
from node.simulated.disk import SimulatedDisk
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline, WallClock
from store.machine.machine import Machine
from tandem.wire.message import Host
from tests.node.shadow.fake_master import FILE_BYTES, HA_PORT, IP, SERVER_PORT, FakeMaster
from tests.support.log_builder import LogBuilder
from tests.support.patience import PATIENCE_SECONDS

SHADOW_IP = "10.0.0.5"
OTHER_IP = "10.0.0.8"
TIMEOUT_SECONDS = 3.0

CONFIG = ShadowConfig(
    directory="/shadow",
    master=Host(IP, HA_PORT),
    name_servers=(Host(IP, SERVER_PORT),),
    max_hash_slot_num=100,
    max_index_num=400,
)


def grow(log: LogBuilder, count: int) -> None:
    for number in range(count):
        log.put("T", bytes([number % 250]) * 300, queue_id=number % 4)


def a_log(count: int, start: int = 0) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES, start_offset=start)
    grow(log, count)
    return log


class World:
    """One master, one shadow's disk, and shadows that are started on it."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.disk = SimulatedDisk()
        self.master = FakeMaster(self.network.machine(IP))
        self.machine = self.network.machine(SHADOW_IP)
        self.said: list[ShadowStatus] = []
        self.builder = LogBuilder()
        """What the master's log is made with."""

    @property
    def log(self) -> bytes:
        """What the shadow's files hold, up to the end it has said."""
        files = sorted(self.disk.list_files("/shadow/commitlog"))
        data = b"".join(self.disk.read(f"/shadow/commitlog/{name}") or b"" for name, _ in files)
        start = int(files[0][0]) if files else 0
        return data[: self.said[-1].log_end - start]

    async def run(self, config: ShadowConfig, stop: trio.Event) -> None:
        machine = Machine(
            disk=self.disk,
            network=self.machine,
            wall_clock_ms=WallClock().now_ms,
            boottime=trio.current_time,
            boot_id="1",
            random=random.Random(1),
        )
        await run_shadow(config, machine, stop, self.said.append)

    @asynccontextmanager
    async def shadow(self, **changes: object) -> AsyncIterator[None]:
        """Run one; it is stopped in good order at the end."""
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, msgspec.structs.replace(CONFIG, **changes), stop)
            yield
            stop.set()

    async def caught_up(self) -> None:
        end = self.master.start + len(self.master.log)
        with trio.fail_after(PATIENCE_SECONDS):
            while not (self.said and self.said[-1].log_end == end):
                await trio.sleep(0.1)
        await trio.sleep(1.5)


@asynccontextmanager
async def open_world(count: int = 40, start: int = 0) -> AsyncIterator[World]:
    world = World()
    world.builder = a_log(count, start)
    world.master.start, world.master.log = start, world.builder.log
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.timeline.run)
        await nursery.start(world.master.serve)
        yield world
        nursery.cancel_scope.cancel()
