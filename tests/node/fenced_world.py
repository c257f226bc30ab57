"""Whole nodes of a fenced group on simulated networks, disks and coordinator.

Use it with the `autojump_clock` fixture.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from tandem.cluster_file.load import load_config
from tandem.wire.ha_status import FencedStatus
from tandem.wire.request_code import RequestCode
from tests.node.world import World
from tests.support.secret import write_secret
from tests.support.simulated_coordinator import SimulatedCoordinator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ha.fenced.events import HAEvent
    from store.machine.machine import Machine as NodeMachine
    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.coordinator.interface import Coordinator

COORDINATOR = "10.0.0.8"

CLUSTER = """\
cluster:
  secret_file: secret
security:
  allow_unauthenticated: true
store:
  mapped_file_size_commit_log_bytes: 1048576
  mapped_file_size_consume_queue_bytes: 6000
  max_message_size_bytes: 100000
  max_hash_slot_num: 50
  max_index_num: 1000
groups:
  broker-a:
    kind: fenced
    learners: [{learners}]
nodes:
  - {{name: a1, group: broker-a, broker_id: 1, address: 10.0.0.1}}
  - {{name: a2, group: broker-a, broker_id: 2, address: 10.0.0.2}}
  - {{name: a3, group: broker-a, broker_id: 3, address: 10.0.0.3}}
"""

NAMES = ("a1", "a2", "a3")


def fenced_cluster(directory: Path, *, learners: str = "") -> ClusterConfig:
    write_secret(directory / "secret")
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER.format(learners=learners), encoding="utf-8")
    return load_config(file)


class FencedWorld(World):
    """A fenced group; `master` finds who is open."""

    def __init__(self, config: ClusterConfig, nursery: trio.Nursery) -> None:
        super().__init__(config, nursery)
        self.coordinator = SimulatedCoordinator(COORDINATOR, self.network, random.Random(2))
        self.events: list[tuple[str, HAEvent]] = []
        self.boots = dict.fromkeys(NAMES, "boot-1")

    def _machine(self, name: str) -> NodeMachine:
        return msgspec.structs.replace(
            super()._machine(name),
            boot_id=self.boots[name],
            random=random.Random(f"{name} {self.boots[name]}"),
            on_event=lambda event: self.events.append((name, event)),
        )

    def _coordinator(self, name: str) -> Coordinator:
        return self.coordinator.client(self._machines[name])

    async def power_off(self, name: str) -> None:
        """End a node as a machine without power does: what was not synced may be gone."""
        self.boots[name] += "+"
        self.disks[name] = self.disks[name].powered_off(random.Random(len(self.boots[name])))
        self._scopes[name].cancel()
        self._machines[name].power_off()
        await self._ended[name].wait()

    async def status(self, name: str) -> FencedStatus:
        async with self.client(self._addresses[name]) as client:
            answer = await client.call(RequestCode.FENCED_STATUS)
            return msgspec.json.decode(answer.body, type=FencedStatus)

    async def master(self, *among: str, after: int = 0) -> str:
        """Wait until one of the nodes takes messages under an epoch higher than `after`."""
        with trio.fail_after(60):
            while True:
                for name in among or NAMES:
                    status = await self.status(name)
                    if status.role == "MASTER" and not status.refusal and status.epoch > after:
                        return name
                await trio.sleep(0.02)

    def address(self, name: str) -> str:
        return self._addresses[name]


@asynccontextmanager
async def open_fenced_world(config: ClusterConfig) -> AsyncIterator[FencedWorld]:
    """A world without nodes yet; ends, nodes and all, with the block."""
    async with trio.open_nursery() as nursery:
        world = FencedWorld(config, nursery)
        nursery.start_soon(world.timeline.run)
        yield world
        nursery.cancel_scope.cancel()
