"""What a person does while a run is under way: orders, and what alarms say.

Orders go over the network to a node that may be frozen, dead or somebody else by now. None is given
with `--accept-loss`: whatever is done, nothing acknowledged may be lost.
"""

from collections.abc import Callable
from typing import Final

import trio

from tandem.client.errors import ClientError
from tandem.wire.ha_status import Command, FencedCommand
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.workload import ClientMachine

ORDER_SECONDS_MAX: Final = 6.0
REMEDY_SECONDS: Final = 0.3
"""From a node that ends because its log is damaged to when somebody has moved its store away."""


class Operator:
    """Gives orders to nodes; `told` hears of each that was carried out, `note` of all."""

    def __init__(
        self,
        machine: ClientMachine,
        nursery: trio.Nursery,
        *,
        told: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._nursery = nursery
        self._told = told
        self._note = note

    def order(self, node: SimulatedNode, command: Command, name: str = "") -> None:
        """Give an order to a node, and wait for what becomes of it elsewhere."""
        self._nursery.start_soon(self._order, node.config.node.broker_address, command, name)

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
