"""The embedded coordinator with TLS: who is let in, and that handshakes take turns."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

import pytest
import trio

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.journal import Journal
from tandem.coordinator.secured_stream import HANDSHAKE_BYTES_MAX, OWN_WORDS_MAX, SecuredStream
from tandem.coordinator.server import CoordinatorServer
from tandem.coordinator.tokens import USER
from tandem.handshake_turns import HandshakeTurns
from tandem.tls_files import TLSFiles
from tandem.wire.tls_engine import TLSEngine
from tests.support import certificates
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.coordinator.contract import COORDINATOR_CONTRACTS
from tests.tandem.coordinator.embedded import PASSWORD, MemoryFile

Outcome = TypeVar("Outcome")

HERE: Final = "127.0.0.1"
RECORD_HEAD: Final = b"\x16\x03\x01"

WITH_TLS: Final = sorted(
    set(COORDINATOR_CONTRACTS) - {"many_calls_at_a_time_do_not_hold_up_a_keep_alive"}
)
"""Not the one that opens two dozen connections at once: both ends of all their handshakes would be
calculated in this process, within the second that a client has to connect."""


class Counted(HandshakeTurns):
    """Knows the bytes of each step, and how many steps run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.most = 0
        self.count = 0

    async def run(self, address: str, step: Callable[[], Outcome]) -> Outcome:
        def counted() -> Outcome:
            self.running += 1
            self.most, self.count = max(self.most, self.running), self.count + 1
            try:
                return step()
            finally:
                self.running -= 1

        return await super().run(address, counted)


@asynccontextmanager
async def secured_server(
    turns: HandshakeTurns | None = None, mode: ssl.VerifyMode = ssl.CERT_NONE
) -> AsyncIterator[int]:
    context = certificates.files().server_context(mode)
    server = CoordinatorServer(
        Journal(MemoryFile()), password=PASSWORD, tls=lambda: context, takes_clear=False
    )
    if turns is not None:
        server._turns = turns
    port = await server.listen(HERE, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        yield port
        nursery.cancel_scope.cancel()


def client_of(port: int, files: TLSFiles | None = None) -> aclosing[EtcdClient]:
    tls = (files or certificates.files()).client_context()
    return aclosing(
        EtcdClient(
            [f"https://{HERE}:{port}"],
            user=USER,
            password=PASSWORD,
            ssl_context=tls,
            request_seconds_max=PATIENCE_SECONDS,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_TLS)
async def test_it_is_a_coordinator_with_tls_too(name: str) -> None:
    async with secured_server() as port, client_of(port) as client:
        await COORDINATOR_CONTRACTS[name](client, "/checked/")


async def said_to(port: int, *pieces: bytes) -> bytes:
    """Send bytes, and no more; return what is answered until the connection is ended."""
    async with await trio.open_tcp_stream(HERE, port) as stream:
        answer = b""
        with trio.fail_after(PATIENCE_SECONDS):
            try:
                for piece in pieces:
                    await stream.send_all(piece)
                while chunk := await stream.receive_some():
                    answer += chunk
            except trio.BrokenResourceError:
                pass
    return answer


async def test_who_speaks_no_tls_is_not_answered() -> None:
    async with secured_server() as port:
        assert await said_to(port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n") == b""


async def test_what_is_no_handshake_is_answered_with_an_alert_and_ended() -> None:
    async with secured_server() as port, client_of(port) as client:
        assert (await said_to(port, RECORD_HEAD + b"\x00\x04none"))[:1] == b"\x15"
        await client.read("/")


async def test_a_handshake_without_end_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    # The first records of a hello that OpenSSL would take: of 100,000 bytes.
    begun = b"\x01" + (100_000).to_bytes(3, "big")
    head = RECORD_HEAD + (16_384).to_bytes(2, "big")
    pieces = [head + begun + bytes(16_380), *[head + bytes(16_384)] * 3]
    async with secured_server() as port, client_of(port) as client:
        assert sum(map(len, pieces)) > HANDSHAKE_BYTES_MAX
        assert await said_to(port, *pieces) == b""
        await client.read("/")
    assert not caplog.records


async def test_a_client_of_another_ca_is_refused_where_a_certificate_is_asked_for() -> None:
    async with secured_server(mode=ssl.CERT_REQUIRED) as port:
        own, others = certificates.files(), certificates.files(ca="another")
        async with client_of(port) as client:
            await client.read("/")
        context = own.client_context()
        context.load_cert_chain(others.certificate_file, others.key_file)
        async with await trio.open_ssl_over_tcp_stream(
            HERE, port, ssl_context=context, https_compatible=True
        ) as stream:
            with pytest.raises(trio.BrokenResourceError) as caught:
                await stream.send_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
                await stream.receive_some()
        assert isinstance(caught.value.__cause__, ssl.SSLError)
        assert caught.value.__cause__.reason == "TLSV1_ALERT_UNKNOWN_CA"


def client_hello() -> bytes:
    engine = TLSEngine(certificates.files().client_context(), server_name=HERE)
    engine.handshake(b"")
    return engine.to_send()


async def test_no_step_of_a_handshake_is_calculated_without_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Counted()
    steps = 0
    calculated = TLSEngine.handshake

    def handshake(engine: TLSEngine, received: bytes) -> bool:
        nonlocal steps
        steps += 1
        assert turns.running == 1
        return calculated(engine, received)

    hello = client_hello()
    async with secured_server(turns) as port:
        monkeypatch.setattr(TLSEngine, "handshake", handshake)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(
                    said_to, port, hello[:7], hello[7:], b"\x15\x03\x03\x00\x02\x02\x28"
                )
    assert turns.most == 1
    assert turns.count == steps >= 20


async def test_who_asks_much_and_takes_nothing_is_ended() -> None:
    class Chatty(TLSEngine):
        def decrypt(self, received: bytes) -> bytes:
            return b""

        def to_send(self) -> bytes:
            return bytes(OWN_WORDS_MAX // 4)

    engine = Chatty(certificates.files().server_context())
    near, far = trio.socket.socketpair()
    stream = SecuredStream(trio.SocketStream(near), engine)
    with near, far:
        await far.send(b"x")
        with pytest.raises(trio.BrokenResourceError):
            for _ in range(5):
                await far.send(b"x")
                with trio.move_on_after(0.01):
                    await stream.receive_some()
