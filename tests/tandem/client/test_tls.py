"""Clients of all three kinds speak TLS with a node, and say what is wrong if they cannot."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from tandem.client import Admin, BlockingAdmin, ClusterAccess
from tandem.client.errors import (
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RouteNotFoundError,
)
from tandem.client.plain_socket import open_socket
from tandem.client.tls import TLSFailedError, TLSSocket
from tandem.tls_files import TLSFileError, TLSFiles
from tests.support import certificates
from tests.support.patience import PATIENCE_SECONDS


@contextmanager
def answering(context: ssl.SSLContext | None, *, answer: bytes = b"") -> Iterator[int]:
    """Answer what comes, or with `answer`; give the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            try:
                stream, _ = listener.accept()
            except TimeoutError:
                continue
            stream.settimeout(PATIENCE_SECONDS)
            try:
                secured = (
                    stream if context is None else context.wrap_socket(stream, server_side=True)
                )
                while data := secured.recv(100_000):
                    secured.sendall(answer or data)
                    if answer:
                        break
                secured.close()
            except OSError:
                stream.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        is_over.set()
        thread.join()
        listener.close()


def dial(port: int, context: ssl.SSLContext) -> TLSSocket:
    return TLSSocket.open(open_socket("127.0.0.1", port, PATIENCE_SECONDS), context, "127.0.0.1")


def test_a_socket_has_what_plain_code_needs() -> None:
    accepting, dialling = certificates.contexts()
    with answering(accepting) as port:
        stream = dial(port, dialling)
        stream.settimeout(PATIENCE_SECONDS)
        data = bytes(range(256)) * 300
        stream.sendall(data)
        received = b""
        while len(received) < len(data):
            piece = stream.recv(1000)
            assert 1 <= len(piece) <= 1000
            received += piece
        assert received == data
        # Nobody hung up, and nothing is there.
        stream.settimeout(0)
        with pytest.raises(BlockingIOError):
            stream.recv(1, socket.MSG_PEEK)
        stream.close()


def test_a_peek_takes_nothing() -> None:
    accepting, dialling = certificates.contexts()
    with answering(accepting, answer=b"answer") as port:
        stream = dial(port, dialling)
        stream.sendall(b"ask")
        assert stream.recv(2) == b"an"
        assert stream.recv(1, socket.MSG_PEEK) == b"s"
        assert stream.recv(100) == b"swer"
        assert stream.recv(100) == b""
        assert stream.recv(100) == b""
        stream.close()


def test_who_is_not_trusted_is_named_in_words() -> None:
    accepting, dialling = certificates.contexts()
    other = certificates.files("other", ca="another").client_context()
    with answering(accepting) as port, pytest.raises(TLSFailedError) as caught:
        dial(port, other)
    assert "not trusted" in str(caught.value)
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4"):
        with answering(None, answer=answer) as port, pytest.raises(TLSFailedError):
            dial(port, dialling)


def access(port: int, files: TLSFiles | None) -> ClusterAccess:
    return ClusterAccess(f"127.0.0.1:{port}", tls=files)


def lost(error: ClientError) -> ConnectionCause:
    """Why a name server was not reached."""
    assert isinstance(error, RouteNotFoundError)
    (trouble,) = error.errors
    assert isinstance(trouble, ConnectionLostError)
    return trouble.cause


async def ask(access: ClusterAccess) -> ConnectionCause:
    """Why a client is not served that asks who is not trusted, or no node."""
    with pytest.raises(ClientError) as caught:
        async with Admin(access) as admin:
            await admin.topics()
    return lost(caught.value)


@pytest.mark.parametrize("run", [trio.run, lambda function, *args: asyncio.run(function(*args))])
def test_a_client_says_why_it_is_not_served(run: object) -> None:
    assert callable(run)
    accepting, _ = certificates.contexts()
    other = certificates.files("other", ca="another")
    with answering(accepting) as port:
        assert run(ask, access(port, other)) is ConnectionCause.TLS
    with answering(None, answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert run(ask, access(port, certificates.files())) is ConnectionCause.TLS
    assert run(ask, access(port, certificates.files())) is ConnectionCause.UNREACHABLE


def test_a_blocking_client_says_why_it_is_not_served() -> None:
    accepting, _ = certificates.contexts()
    other = certificates.files("other", ca="another")
    with (
        answering(accepting) as port,
        BlockingAdmin(access(port, other)) as admin,
        pytest.raises(ClientError) as caught,
    ):
        admin.topics()
    assert lost(caught.value) is ConnectionCause.TLS


def test_a_file_that_cannot_be_used_is_named_before_anything_is_dialled(tmp_path: Path) -> None:
    missing = TLSFiles(str(tmp_path / "ca.pem"))
    for kind in (Admin, BlockingAdmin):
        with pytest.raises(TLSFileError):
            kind(access(1, missing))


def test_access_is_a_value_that_says_which_files() -> None:
    one = access(1, TLSFiles("ca.pem"))
    assert one == access(1, TLSFiles("ca.pem"))
    assert one != access(1, None)
    assert "ca.pem" in repr(one)
    assert msgspec.structs.replace(one, tls=None) == access(1, None)
