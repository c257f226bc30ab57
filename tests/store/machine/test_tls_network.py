"""TLS keeps the contract of streams over real sockets and over the simulated network."""

import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from node.simulated.network import Machine, SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from store.machine.errors import ConnectionLost
from store.machine.network import Listener, Network, Stream
from store.machine.tcp_network import TCPNetwork
from store.machine.tls_network import AcceptedStream, TLSNetwork, TLSTerms
from store.machine.tls_stream import TLSStream
from tandem.handshake_turns import HandshakeTurns
from tandem.tls_files import TLSFiles
from tandem.wire.tls_engine import TLSEngine
from tests.support import certificates
from tests.support.contracts import NETWORK_CONTRACTS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.tls import HERE, open_ends, terms


@pytest.mark.parametrize("name", NETWORK_CONTRACTS)
async def test_over_real_sockets_it_keeps_the_contract(name: str) -> None:
    ends = await open_ends(TLSNetwork(TCPNetwork(), terms()))
    try:
        await NETWORK_CONTRACTS[name](ends)
    finally:
        await ends.listener.aclose()
        await ends.dialled.aclose()
        await ends.accepted.aclose()


@pytest.mark.parametrize("name", NETWORK_CONTRACTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_over_the_simulated_network_it_keeps_the_contract(
    name: str, seed: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    timeline = Timeline()
    nursery.start_soon(timeline.run)
    machine = SimulatedNetwork(timeline, random.Random(seed)).machine(HERE)
    await NETWORK_CONTRACTS[name](await open_ends(TLSNetwork(machine, terms())))


async def lost(function: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(ConnectionLost) as caught, trio.fail_after(PATIENCE_SECONDS):
        await function()
    return str(caught.value)


class Port:
    """A port with TLS on the simulated network, and a dialler with terms of its own."""

    def __init__(self, machine: Machine, of_port: TLSTerms, of_dialler: TLSTerms) -> None:
        self.machine = machine
        self.network = TLSNetwork(machine, of_port)
        self.dialler = TLSNetwork(machine, of_dialler)
        self.listener: Listener | None = None

    async def dial(self, network: Network | None = None) -> tuple[Stream, AcceptedStream]:
        """A connection; whatever comes of its handshake comes when the other end is read."""
        if self.listener is None:
            self.listener = await self.network.listen(HERE, 0)
        accepted: list[Stream] = []
        dialled: list[Stream] = []

        async def accept() -> None:
            assert self.listener is not None
            accepted.append(await self.listener.accept())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            stream = await (network or self.machine).connect(HERE, self.listener.port, source=None)
            dialled.append(stream)
        assert isinstance(accepted[0], AcceptedStream)
        return dialled[0], accepted[0]


@pytest.fixture
def port(nursery: trio.Nursery, autojump_clock: MockClock) -> Callable[..., Port]:
    timeline = Timeline()
    nursery.start_soon(timeline.run)
    machine = SimulatedNetwork(timeline, random.Random(1)).machine(HERE)

    def make(of_port: TLSTerms | None = None, of_dialler: TLSTerms | None = None) -> Port:
        return Port(machine, of_port or terms(), of_dialler or terms())

    return make


async def test_what_is_left_to_the_end_of_a_round_is_done_also_with_the_first_bytes(
    port: Callable[..., Port], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    this = port(terms(takes_clear=True))
    taken: list[bytes] = []

    def take(data: bytes) -> Callable[[], bool]:
        def at_round_end() -> bool:
            taken.append(data)
            return data != b"last"

        return at_round_end

    async def send(stream: Stream) -> None:
        for data in (b"first", b"last"):
            await stream.send_all(data)
            await trio.sleep(1)

    dialled, accepted = await this.dial()
    nursery.start_soon(send, dialled)
    assert await accepted.receive_while(100, take) is True
    assert taken == [b"first", b"last"]


async def test_what_speaks_no_tls_is_served_where_that_is_allowed(
    port: Callable[..., Port],
    autojump_clock: MockClock,
) -> None:
    dialled, accepted = await port(terms(takes_clear=True)).dial()
    await dialled.send_all(b"\0\0\0\1plain")
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        taken.append(data)
        return len(b"".join(taken)) < 9

    assert await accepted.receive_while(3, take) is True
    assert b"".join(taken) == b"\0\0\0\1plain"
    assert max(map(len, taken)) <= 3
    assert accepted.peer_name is None
    await accepted.send_all(b"answer")
    assert await dialled.receive_some(100) in [b"answer"[:size] for size in range(1, 7)]


async def test_what_speaks_no_tls_is_refused_elsewhere(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    dialled, accepted = await port().dial()
    await dialled.send_all(b"\0\0\0\1plain")
    assert "enforcing" in await lost(partial(accepted.receive_some, 100))
    # So is what is sent there: nothing goes out before the peer has said what it speaks.
    assert accepted.send_nowait(b"x") == 0
    assert "enforcing" in await lost(partial(accepted.send_all, b"x"))


async def test_who_says_nothing_is_at_the_end_as_anywhere(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    dialled, accepted = await port().dial()
    await dialled.aclose()
    assert await accepted.receive_some(100) == b""
    assert await accepted.receive_some(100) == b""


async def test_a_node_without_a_certificate_refuses_tls(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    dialled, accepted = await port(terms(accepting=None, takes_clear=True)).dial()
    await dialled.send_all(b"\x16\3\1")
    assert "no certificate" in await lost(partial(accepted.receive_some, 100))


@pytest.mark.parametrize("size", [0, 1, 5, 100])
async def test_a_handshake_that_does_not_go_on_ends(
    port: Callable[..., Port], autojump_clock: MockClock, size: int
) -> None:
    hello = client_hello()[: size or None]
    dialled, accepted = await port().dial()
    await dialled.send_all(hello)
    began = trio.current_time()
    assert "5 seconds" in await lost(partial(accepted.receive_some, 100))
    assert 5 <= trio.current_time() - began < 5.1


@pytest.mark.parametrize("cut", [1, 4, 7, 60])
async def test_a_handshake_that_is_cut_off_ends(
    port: Callable[..., Port], cut: int, autojump_clock: MockClock
) -> None:
    dialled, accepted = await port().dial()
    await dialled.send_all(client_hello()[:cut])
    await dialled.aclose()
    assert "ended the connection" in await lost(partial(accepted.receive_some, 100))


async def test_a_handshake_has_few_bytes(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    """A hello may say that it has 16 MB."""
    dialled, accepted = await port().dial()
    record = b"\x16\3\1\x40\0" + b"\1\xff\xff\xff" + bytes(16_380)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swallow_lost, partial(dialled.send_all, record * 40))
        reason = await lost(partial(accepted.receive_some, 100))
        nursery.cancel_scope.cancel()
    assert "too much" in reason or "excessive" in reason


@pytest.mark.parametrize("size", [1, 40_000, 200_000])
async def test_a_client_may_send_right_behind_its_last_word(
    port: Callable[..., Port], size: int, autojump_clock: MockClock
) -> None:
    """What comes with the end of the handshake is none of it, however much it is."""
    dialled, accepted = await port().dial()
    text = random.Random(size).randbytes(size)
    client = TLSEngine(terms().dialling, server_name=HERE)
    received = bytearray()

    async def say() -> None:
        heard = b""
        while not client.handshake(heard):
            if client.has_to_send:
                await dialled.send_all(client.to_send())
            heard = await dialled.receive_some(100_000)
        await dialled.send_all(client.to_send() + client.encrypt(text))

    def take(data: bytes) -> bool:
        received.extend(data)
        return len(received) < size

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(say)
            assert await accepted.receive_while(100_000, take)
    assert received == text


async def swallow_lost(function: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(ConnectionLost):
        await function()


def client_hello() -> bytes:
    engine = TLSEngine(terms().dialling, server_name=HERE)
    engine.handshake(b"")
    return engine.to_send()


async def agree(port: Port) -> tuple[Stream, AcceptedStream]:
    """A connection whose handshake is through on both ends."""
    ends = await open_ends(port.network, port.dialler)
    assert isinstance(ends.accepted, AcceptedStream)
    return ends.dialled, ends.accepted


@pytest.mark.parametrize(
    ("of_port", "of_dialler", "reason"),
    [
        ({}, {"ca": "another"}, "not trusted"),
        ({"addresses": ("127.0.0.9",)}, {}, "IP address mismatch"),
    ],
)
async def test_a_dialler_believes_no_other_certificate(
    port: Callable[..., Port],
    of_port: dict[str, Any],
    of_dialler: dict[str, Any],
    reason: str,
    autojump_clock: MockClock,
) -> None:
    name = "elsewhere" if of_port else "node"
    own = certificates.files(name, *of_port.get("addresses", ()))
    other = certificates.files("dialler", **of_dialler)
    ends = port(
        terms(accepting=own.server_context(ssl.CERT_NONE)),
        terms(dialling=other.client_context()),
    )
    listener = await ends.network.listen(HERE, 0)
    said: list[str] = []

    async def serve() -> None:
        stream = await listener.accept()
        said.append(await lost(partial(stream.receive_some, 100)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        dial = partial(ends.dialler.connect, HERE, listener.port, source=None)
        assert reason in await lost(dial)
    assert "does not trust our certificate" in said[0]


async def test_who_shows_no_certificate_is_refused_where_one_is_asked_for(
    port: Callable[..., Port],
    autojump_clock: MockClock,
) -> None:
    accepting, _ = certificates.contexts(asks=True)
    files = certificates.files()
    bare = TLSFiles(ca_file=files.ca_file)
    shows = port(terms(accepting=accepting))
    dialled, accepted = await agree(shows)
    assert accepted.peer_name == "node"
    await dialled.aclose()

    ends = port(terms(accepting=accepting), terms(dialling=bare.client_context()))
    listener = await ends.network.listen(HERE, 0)

    async def serve() -> None:
        stream = await listener.accept()
        assert "no certificate" in await lost(partial(stream.receive_some, 100))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        # With TLS 1.3 the dialler is through before the other end has seen that there is none.
        stream = await ends.dialler.connect(HERE, listener.port, source=None)
        assert "asks for a certificate" in await lost(partial(stream.receive_some, 100))


async def test_a_peer_without_tls_is_dialled_in_clear_where_that_is_allowed(
    port: Callable[..., Port],
    autojump_clock: MockClock,
) -> None:
    ends = port()
    listener = await ends.machine.listen(HERE, 0)
    accepted: list[Stream] = []

    async def serve() -> None:
        first = await listener.accept()
        assert (await first.receive_some(1)) == b"\x16"
        first.close_nowait()
        accepted.append(await listener.accept())

    for dials_clear in (True, False):
        network = TLSNetwork(ends.machine, terms(dials_clear=dials_clear))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            dial = partial(network.connect, HERE, listener.port, source=None)
            if dials_clear:
                stream = await dial()
                await stream.send_all(b"clear")
            else:
                await lost(dial)
                nursery.cancel_scope.cancel()
    received = b""
    while len(received) < 5:
        received += await accepted[0].receive_some(5)
    assert received == b"clear"


async def test_certificates_are_renewed_for_connections_to_come(
    port: Callable[..., Port],
    autojump_clock: MockClock,
) -> None:
    ends = port()
    old, at_old = await agree(ends)
    fresh = certificates.files("renewed")
    ends.network.terms = terms(accepting=fresh.server_context(ssl.CERT_NONE))
    new, _ = await agree(ends)
    assert isinstance(old, TLSStream)
    assert isinstance(new, TLSStream)
    assert (old.peer_name, new.peer_name) == ("node", "renewed")
    await old.send_all(b"still")
    assert await at_old.receive_some(1) == b"s"


async def test_hostile_bytes_end_their_own_connection_only(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    ends = port(terms(takes_clear=True))
    good, at_good = await agree(ends)
    chance = random.Random(7)
    hello = client_hello()
    for _ in range(300):
        data = bytearray(hello)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(1, len(data))] = chance.randrange(256)
        data += chance.randbytes(chance.randrange(0, 300))
        dialled, accepted = await ends.dial()
        await dialled.send_all(data)
        await dialled.aclose()
        with contextlib.suppress(ConnectionLost):
            assert await accepted.receive_some(100) == b""
        accepted.close_nowait()
    await good.send_all(b"well?")
    assert await at_good.receive_some(1) == b"w"


async def test_what_is_wrong_with_an_address_is_told_once(
    port: Callable[..., Port], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger may not fill the log."""
    ends = port()
    for data in [b"\x16\3\1\0\5nonsense"] * 10 + [b"plain"] * 10:
        dialled, accepted = await ends.dial()
        await dialled.send_all(data)
        await lost(partial(accepted.receive_some, 100))
        await dialled.aclose()
        accepted.close_nowait()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


async def test_who_waits_for_our_word_speaks_no_tls(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    """A follower of a fenced group waits for its master, which may have TLS already."""
    dialled, accepted = await port(terms(takes_clear=True)).dial()
    received: list[bytes] = []
    with trio.move_on_after(0.1):  # a reader that gives up once
        await accepted.receive_some(1)

    async def receive() -> None:
        received.append(await accepted.receive_some(1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await accepted.send_all(b"welcome")
        assert 0.5 <= trio.current_time() - began < 0.51
        assert await dialled.receive_some(1) == b"w"
        await dialled.send_all(b"x")
    assert received == [b"x"]


async def test_who_has_to_speak_tls_is_waited_for(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    dialled, accepted = await port().dial()
    with trio.move_on_after(3) as scope:
        await accepted.send_all(b"welcome")
    assert scope.cancelled_caught
    await dialled.aclose()


class Counted(HandshakeTurns):
    """Knows who has a turn now, and how many turns there were."""

    def __init__(self) -> None:
        super().__init__()
        self.holders = 0
        self.turns = 0

    async def take(self, address: str) -> None:
        await super().take(address)
        self.holders += 1
        self.turns += 1

    def give(self, seconds: float) -> None:
        self.holders -= 1
        super().give(seconds)


@pytest.mark.parametrize("piece", [1, 3, 100, 4096])
async def test_no_step_of_a_handshake_is_calculated_without_a_turn(
    port: Callable[..., Port],
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    piece: int,
) -> None:
    """Who sends a hello in pieces has its dear step in none of the first."""
    ends = port()
    turns = ends.network._turns = Counted()
    hello = client_hello()
    held: list[int] = []
    calculated = TLSEngine.handshake

    def handshake(engine: TLSEngine, received: bytes) -> bool:
        held.append(turns.holders)
        return calculated(engine, received)

    monkeypatch.setattr(TLSEngine, "handshake", handshake)
    dialled, accepted = await ends.dial()

    async def say() -> None:
        for start in range(0, len(hello), piece):
            await dialled.send_all(hello[start : start + piece])
            await trio.sleep(0.005)
        await dialled.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        await lost(partial(accepted.receive_some, 100))
    assert set(held) == {1}
    assert turns.turns == len(held)


async def test_a_handshake_that_was_given_up_is_not_begun_again(
    port: Callable[..., Port], autojump_clock: MockClock
) -> None:
    dialled, accepted = await port().dial()
    await dialled.send_all(client_hello()[:50])
    with trio.move_on_after(0.1) as scope:
        await accepted.receive_some(100)
    assert scope.cancelled_caught
    began = trio.current_time()
    assert "not finished" in await lost(partial(accepted.receive_some, 100))
    assert "not finished" in await lost(partial(accepted.send_all, b"x"))
    assert trio.current_time() == began
