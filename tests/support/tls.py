"""Connections with TLS between two tasks of a test."""

from typing import Final

import trio

from store.machine.network import Listener, Network, Stream
from store.machine.tls_network import AcceptedStream, TLSNetwork, TLSTerms
from tests.support import certificates
from tests.support.contracts import Ends

HERE: Final = "127.0.0.1"


def terms(**changes: object) -> TLSTerms:
    """What both ends agree on, with some changes."""
    accepting, dialling = certificates.contexts()
    usual = TLSTerms(accepting, dialling, takes_clear=False, dials_clear=False)
    return usual._replace(**changes)  # type: ignore[arg-type]


async def accept(listener: Listener, into: list[Stream]) -> None:
    """Accept a connection and do its handshake."""
    stream = await listener.accept()
    into.append(stream)
    assert isinstance(stream, AcceptedStream)
    await stream.settle()


async def open_ends(network: TLSNetwork, dialling: Network | None = None) -> Ends:
    """Listen and dial, and do the handshake."""
    listener = await network.listen(HERE, 0)
    accepted: list[Stream] = []
    dialled: Stream | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, listener, accepted)
        dialled = await (dialling or network).connect(HERE, listener.port, source=None)
    assert dialled is not None
    return Ends(network, listener, dialled, accepted[0])
