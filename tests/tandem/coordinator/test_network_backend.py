"""Connections of the coordinator's client are closed whatever becomes of their handshake."""

import ssl

import httpcore
import pytest
import trio

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.network_backend import NetworkBackend
from tests.support import certificates
from tests.support.patience import PATIENCE_SECONDS

HERE = "127.0.0.1"


async def test_a_handshake_that_is_cancelled_closes_its_socket() -> None:
    """Without a word of the other end, which sees the end of the connection at once."""
    listeners = await trio.open_tcp_listeners(0, host=HERE)
    (listener,) = listeners
    port = listener.socket.getsockname()[1]
    stream = await NetworkBackend().connect_tcp(HERE, port)
    accepted = await listener.accept()
    with trio.move_on_after(0.05) as scope:
        await stream.start_tls(ssl.create_default_context(), "x")
    assert scope.cancelled_caught

    with trio.fail_after(PATIENCE_SECONDS):
        while await accepted.receive_some():  # its first words, then the end
            pass
    await accepted.aclose()
    await listener.aclose()


async def test_a_call_that_has_its_limit_in_a_handshake_leaves_no_socket_open() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=HERE)
    port = listener.socket.getsockname()[1]
    client = EtcdClient(
        [f"https://{HERE}:{port}"], ssl_context=certificates.files().client_context()
    )
    with trio.move_on_after(0.1):
        await client.read("a/")
    accepted = await listener.accept()

    with trio.fail_after(PATIENCE_SECONDS):
        while await accepted.receive_some():
            pass
    await accepted.aclose()
    await listener.aclose()
    await client.aclose()


async def test_a_connection_without_tls_says_what_it_knows_and_is_read_and_written() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=HERE)
    port = listener.socket.getsockname()[1]
    backend = NetworkBackend()
    stream = await backend.connect_tcp(HERE, port)
    accepted = await listener.accept()
    await stream.write(b"question")
    assert await accepted.receive_some() == b"question"
    await accepted.send_all(b"answer")
    assert await stream.read(100) == b"answer"
    assert stream.get_extra_info("server_addr") == (HERE, port)
    await backend.sleep(0)
    await stream.aclose()
    with pytest.raises(httpcore.ReadError):
        await stream.read(1)
    await accepted.aclose()
    await listener.aclose()
