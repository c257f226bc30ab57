"""A network that can be broken: one TCP proxy for each pair of nodes that talk.

    broker-a-1 --dials--> 127.x.1.2 (proxy of the pair) --dials--> broker-a-2

Each pair (the dialling node, the dialled one) has an address of its own; the nodes learn of it by
`nodes[].reach` of the drill's cluster file. The proxy dials on from the dialling node's address, so
a peer that knows others by their address sees what it would see without it.

A fault hits a flow: the bytes from one node to another, whichever of them dialled. A stalled
flow loses nothing. Its bytes wait, as they do in TCP while a network is cut, and go on when it
heals; so do ends of streams. A new connection is accepted, and dialled on when its dialler's flow
may pass.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import trio

from tandem.drill.proxied_pair import PASS, FlowRule, ProxiedPair

CHUNK_BYTES: Final = 65_536
CHUNKS_MAX: Final = 64
"""How many chunks wait in the proxy for each flow; then the sender is held up."""

DIAL_SECONDS_MAX: Final = 2.0
ANY_PORT: Final = 0


FlowKey = tuple[str, str, int]
"""From, to, port; `ANY_PORT` for all ports that have no rule of their own."""


class FlowRules:
    """The rules of now. Pure, but for the event that wakes those that wait for a change."""

    def __init__(self) -> None:
        self._rules: dict[FlowKey, FlowRule] = {}
        self.changed = trio.Event()

    def of(self, source: str, target: str, port: int) -> FlowRule:
        """The rule of a flow."""
        general = self._rules.get((source, target, ANY_PORT), PASS)
        own = self._rules.get((source, target, port), PASS)
        return FlowRule(
            stalled=general.stalled or own.stalled,
            delay_seconds=max(general.delay_seconds, own.delay_seconds),
            bytes_per_second=own.bytes_per_second or general.bytes_per_second,
        )

    def change(self, source: str, target: str, rule: FlowRule, port: int = ANY_PORT) -> None:
        """Set the rule of a flow."""
        self._rules[source, target, port] = rule
        self._tell()

    def heal(self) -> None:
        """Let everything pass."""
        self._rules.clear()
        self._tell()

    async def until_open(self, source: str, target: str, port: int) -> FlowRule:
        """Return the rule once the flow is not stalled."""
        while (rule := self.of(source, target, port)).stalled:
            await self.changed.wait()
        return rule

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class FaultProxy:
    """The proxies of all pairs. `rules` may be changed at any time."""

    def __init__(self, pairs: Sequence[ProxiedPair]) -> None:
        self.pairs = tuple(pairs)
        self.rules = FlowRules()
        self._connections: dict[trio.CancelScope, ProxiedPair] = {}

    @property
    def nodes(self) -> set[str]:
        """All names that dial or are dialled."""
        return {name for pair in self.pairs for name in (pair.source, pair.target)}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            OSError: an address cannot be listened on.
        """
        async with trio.open_nursery() as nursery:
            for pair in self.pairs:
                for port in pair.ports:
                    serve = partial(
                        trio.serve_tcp,
                        partial(self._serve, pair, port),
                        port,
                        host=pair.listen_address,
                        handler_nursery=nursery,
                    )
                    await nursery.start(serve)
            task_status.started()

    def reset(self, node: str) -> int:
        """Close all connections of a node at once; return how many there were."""
        ended = [
            scope for scope, pair in self._connections.items() if node in (pair.source, pair.target)
        ]
        for scope in ended:
            scope.cancel()
        return len(ended)

    async def _serve(self, pair: ProxiedPair, port: int, inbound: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._connections[scope] = pair
            try:
                async with inbound:
                    await self._forward(pair, port, inbound)
            finally:
                del self._connections[scope]

    async def _forward(self, pair: ProxiedPair, port: int, inbound: trio.SocketStream) -> None:
        await self.rules.until_open(pair.source, pair.target, port)
        outbound = await _dial(pair, port)
        if outbound is None:
            return  # the dialler sees its connection end, as after a refusal
        async with outbound, trio.open_nursery() as nursery:
            there = (pair.source, pair.target, port)
            back = (pair.target, pair.source, port)
            nursery.start_soon(self._pump, inbound, outbound, there)
            nursery.start_soon(self._pump, outbound, inbound, back)

    async def _pump(
        self, reader: trio.SocketStream, writer: trio.SocketStream, key: FlowKey
    ) -> None:
        """Carry one flow to its end; the end of the stream travels like its bytes."""
        put, take = trio.open_memory_channel[tuple[float, bytes]](CHUNKS_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_all, reader, put)
            async with take:
                async for read_at, chunk in take:
                    rule = await self.rules.until_open(*key)
                    await trio.sleep_until(read_at + rule.delay_seconds)
                    # It may have been cut while the bytes were on their way.
                    await self.rules.until_open(*key)
                    if not await _write(writer, chunk):
                        break
                    if rule.bytes_per_second:
                        await trio.sleep(len(chunk) / rule.bytes_per_second)
            nursery.cancel_scope.cancel()


async def _dial(pair: ProxiedPair, port: int) -> trio.SocketStream | None:
    try:
        with trio.fail_after(DIAL_SECONDS_MAX):
            return await trio.open_tcp_stream(
                pair.target_address, port, local_address=pair.source_address or None
            )
    except (OSError, trio.TooSlowError):
        return None


async def _read_all(
    reader: trio.SocketStream, put: trio.MemorySendChannel[tuple[float, bytes]]
) -> None:
    """Hand on what is read, at last an empty chunk: the end."""
    async with put:
        while True:
            try:
                chunk = await reader.receive_some(CHUNK_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                chunk = b""
            try:
                await put.send((trio.current_time(), bytes(chunk)))
            except trio.BrokenResourceError:
                return
            if not chunk:
                return


async def _write(writer: trio.SocketStream, chunk: bytes) -> bool:
    """Write a chunk, or close the stream at the end; say whether there is more to do."""
    try:
        if chunk:
            await writer.send_all(chunk)
            return True
        # Not `send_eof`: no protocol of ours goes on with half a connection.
        await writer.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await writer.aclose()
    return False


def pairs_of(
    network: str,
    nodes: Sequence[tuple[str, str, tuple[int, ...]]],
    coordinator: tuple[str, tuple[int, ...]] | None = None,
) -> Iterator[ProxiedPair]:
    """Yield all pairs of nodes (name, address, ports), and of each with the coordinator.

    `network` is the first two numbers of the proxies' addresses, such as "127.1".
    """
    for row, (source, source_address, _) in enumerate(nodes, start=1):
        for column, (target, target_address, ports) in enumerate(nodes, start=1):
            if source != target:
                yield ProxiedPair(
                    source=source,
                    source_address=source_address,
                    target=target,
                    target_address=target_address,
                    listen_address=f"{network}.{row}.{column}",
                    ports=ports,
                )
        if coordinator is not None:
            yield ProxiedPair(
                source=source,
                source_address=source_address,
                target="coordinator",
                target_address=coordinator[0],
                listen_address=f"{network}.{row}.254",
                ports=coordinator[1],
            )
