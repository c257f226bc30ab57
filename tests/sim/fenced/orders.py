"""What a person does while a run is under way: orders, and what alarms say.

Orders go over the network to a node that may be frozen, dead or somebody else by now. None is given
with `--accept-loss`, but after a blackout: whatever is done, nothing acknowledged may be lost.
"""

from collections.abc import Callable, Sequence
from typing import Final

import trio

from tandem.cli.group_orders import recover_group
from tandem.client.errors import ClientError
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.views.fenced_group import FencedGroup, RecordStore
from tandem.views.group_view import Member
from tandem.wire.ha_status import Command, FencedCommand
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.workload import ClientMachine

ORDER_SECONDS_MAX: Final = 6.0
AGAIN_SECONDS: Final = 0.5
REMEDY_SECONDS: Final = 0.3
"""From a node that ends because its log is damaged to when somebody has moved its store away."""


class Operator:
    """Gives orders to nodes; `told` hears of each that was carried out, `note` of all."""

    def __init__(
        self,
        machine: ClientMachine,
        nursery: trio.Nursery,
        *,
        coordinator: RecordStore,
        config: ClusterConfig,
        told: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._nursery = nursery
        self._coordinator = coordinator
        self._config = config
        self._told = told
        self._note = note

    def order(self, node: SimulatedNode, command: Command, name: str = "") -> None:
        """Give an order to a node, and wait for what becomes of it elsewhere."""
        self._nursery.start_soon(self._order, node.config.node.broker_address, command, name)

    def begin_recover(self) -> None:
        """Do what `tandem ha recover-group` does, whatever the moment is like."""
        self._nursery.start_soon(self.recover)

    def recover_until(self, is_well: Callable[[], bool]) -> None:
        """Do it again and again until all is well, as a person does who reads the status."""

        async def go_on() -> None:
            while not is_well():
                await self.recover()
                await trio.sleep(AGAIN_SECONDS)

        self._nursery.start_soon(go_on)

    def scrub_until(self, rotten: Callable[[], Sequence[SimulatedNode]]) -> None:
        """Have nodes look through their disks, again and again until none of them is rotten."""

        async def go_on() -> None:
            while nodes := rotten():
                for node in nodes:
                    await self._order(node.config.node.broker_address, "scrub", "")
                await trio.sleep(AGAIN_SECONDS)

        self._nursery.start_soon(go_on)

    async def recover(self, *, accept_loss: bool = False) -> bool:
        """Run `tandem ha recover-group` once; return whether the group goes on by it."""
        outcome = "no answer"
        name = next(iter(self._config.groups))
        members = [
            Member(node.name, node.broker_address) for node in self._config.group_nodes(name)
        ]
        with trio.move_on_after(ORDER_SECONDS_MAX):
            async with self._machine.admin() as admin:
                group = FencedGroup(
                    self._config.cluster.name, name, members, admin, self._coordinator
                )
                result = await recover_group(
                    group,
                    min_isr=self._config.groups[name].min_isr,
                    accept_loss=accept_loss,
                    wait_seconds=0.0,
                )
            outcome = result.text
        self._note(f"recover-group: {outcome}")
        goes_on = "goes on from it" in outcome
        if goes_on:
            self._told("recover-group")
        return goes_on

    async def _order(self, address: str, command: Command, name: str) -> None:
        outcome = "no answer"
        with trio.move_on_after(ORDER_SECONDS_MAX):
            try:
                async with self._machine.admin() as admin:
                    result = await admin.fenced_command(
                        address,
                        FencedCommand(command=command, node=name),
                        timeout_seconds=ORDER_SECONDS_MAX,
                    )
            except ClientError as error:
                outcome = str(error)
            else:
                outcome = result.text
                if result.done:
                    self._told(command)
        self._note(f"{command} {name}: {outcome}")
