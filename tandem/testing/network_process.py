"""`python -P -m tandem.testing.network_process PAIRS`: the proxies of one cluster.

Standard input is the connection to the test: lists of flows and their rules come in, and each is
answered when it is in effect. The process ends when that connection does.
"""

import socket
import sys
from collections.abc import Sequence

import trio

from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.proxied_pair import ProxiedPair
from tandem.testing.faults import Flow
from tandem.testing.network import DONE, MESSAGE_BYTES_MAX
from tandem.wire.untrusted import decode_json


def main(arguments: Sequence[str]) -> int:
    """Serve the pairs, as JSON, until the connection to the test ends."""
    pairs = decode_json(arguments[0].encode(), list[ProxiedPair])
    with socket.socket(fileno=0) as connection:
        trio.run(serve, FaultProxy(pairs), connection)
    return 0


async def serve(proxy: FaultProxy, connection: socket.socket) -> None:
    """Run the proxies and do what comes by the connection, until it ends."""
    orders = trio.socket.from_stdlib_socket(connection)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        await orders.send(DONE)
        while message := await orders.recv(MESSAGE_BYTES_MAX):
            proxy.rules.heal()
            for flow in decode_json(message, list[Flow]):
                proxy.rules.change(flow.source, flow.target, flow.rule)
            await orders.send(DONE)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
