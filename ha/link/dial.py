"""Dials the node at the other end of a link."""

from __future__ import annotations

import trio

from store.machine.errors import ConnectionLost
from store.machine.network import Network, Stream
from tandem.wire.message import Host


async def dial(network: Network, peer: Host, *, source: str | None, seconds: float) -> Stream:
    """Connect, from our own address `source` if there is one; give up after `seconds`.

    Raises:
        ConnectionLost: see `Network.connect`; or nobody answered in time.
    """
    with trio.move_on_after(seconds):
        return await network.connect(peer.ip, peer.port, source=source)
    raise ConnectionLost(f"no answer within {seconds:g} seconds")
