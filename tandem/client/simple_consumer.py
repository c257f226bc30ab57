"""Consumers without queues of their own: `SimpleConsumer` for trio and asyncio, and its twin.

    async with SimpleConsumer(name_servers, group="billing") as consumer:
        for message in await consumer.receive("Orders"):
            ...
            await consumer.ack(message)

Any number of them, in any number of processes, share a topic: each call of `receive` gets messages
that nobody else has, and each message is acknowledged by itself. There is no rebalance, and a slow
message holds up no other.

The promise is **at least once**. A message that is not acknowledged in its time comes again, with
one more `reconsume_times`, as often as the group's settings say (16 times), and is then a dead
letter, in `%DLQ%GROUP`. It is RocketMQ 5's POP; see docs/pop.md.

Source: RocketMQ 5.3.3, PopMessageProcessor; the names are those of its SimpleConsumer.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.core import ClientCore
from tandem.client.event_loop import LoopClock
from tandem.client.faces import AsyncFace, BlockingFace
from tandem.client.identity import wall_clock_ms
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.pop_flow import Popper
from tandem.client.pop_operations import PopOperations, Pops
from tandem.wire.errors import ArgumentError

PopStart = Literal["earliest", "latest"]

_STARTS: Final = ("earliest", "latest")


class SimpleConsumer(AsyncFace, PopOperations):
    """Receives messages by POP; any number of tasks may share one.

    Args:
        cluster: the name servers, "host:port", all of them; or a `ClusterAccess`.
        group: the consumer group.
        orderly: the messages of a queue one batch after the other: nobody gets the next ones before
            all of a batch are acknowledged, and what is not in time comes again in its place.
        start: where the group begins in a queue that it never read: "earliest", or "latest", at its
            last message.
        open_stream: opens connections; tests put another network here.
        wall_clock_ms: the time in requests.

    Every method raises `ClientError`: `RouteNotFoundError` if the topic has no broker,
    `ConnectionLostError` or `RequestTimeoutError` if none of them answers, `BrokerError` if one
    refuses.

    Raises:
        ArgumentError: `start` is something else.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        orderly: bool = False,
        start: PopStart = "earliest",
        open_stream: StreamOpener | None = None,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        core = ClusterAccess.of(cluster).core(LoopClock(), consumer_group=group)
        pops = _pops(core, group, orderly=orderly, start=start, wall_clock_ms=wall_clock_ms)
        super().__init__(AsyncShell(core, open_stream), pops)


class BlockingSimpleConsumer(BlockingFace, PopOperations):
    """The same for plain code: no trio, one socket per broker, one request at a time.

    Use it as a context manager, from one thread. Arguments as for `SimpleConsumer`.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        orderly: bool = False,
        start: PopStart = "earliest",
        opener: SocketOpener = open_socket,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        core = ClusterAccess.of(cluster).core(time.monotonic, consumer_group=group)
        pops = _pops(core, group, orderly=orderly, start=start, wall_clock_ms=wall_clock_ms)
        super().__init__(BlockingShell(core, opener), pops)


def _pops(
    core: ClientCore,
    group: str,
    *,
    orderly: bool,
    start: str,
    wall_clock_ms: Callable[[], int],
) -> Pops:
    if start not in _STARTS:
        raise ArgumentError(f'start is {start!r}; it is "earliest" or "latest"', "start")
    popper = Popper(
        core,
        group,
        is_orderly=orderly,
        starts_at_end=start == "latest",
        wall_clock_ms=wall_clock_ms,
    )
    return Pops(popper)
