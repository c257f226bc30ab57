import datetime as dt
import ssl
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio

from node.metrics import otlp_collector
from node.metrics.otlp_collector import (
    ANSWER_BYTES_MAX,
    METRICS_PATH,
    NotTaken,
    NotTakenError,
    OTLPCollector,
)
from tandem.cluster.certificates import make_certificates
from tandem.cluster_file.choices import TLSMode
from tandem.cluster_file.settings import TLSSettings
from tests.node.world import fenced_cluster
from tests.support.http_collector import HTTPCollector, collecting
from tests.support.loopback import own_network

PORT = 4318
BODY = zlib.compress(b"", wbits=31)


@pytest.fixture
def address() -> str:
    return f"{own_network()}.1"


async def refusal(collector: OTLPCollector) -> NotTaken:
    with pytest.raises(NotTakenError) as caught:
        await collector.send(BODY)
    assert str(caught.value)
    return caught.value.why


async def test_a_request_says_what_it_is_and_has_the_headers_of_the_file(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "headers"
    file.touch(0o600)
    file.write_text("Authorization: Bearer one\n")
    at, collector = HTTPCollector(), OTLPCollector(f"http://{address}:{PORT}", headers_file=file)
    async with collecting(at, address, PORT):
        assert await collector.send(BODY) == b""
        file.write_text("Authorization: Bearer two\n")
        await collector.send(BODY)
        own = OTLPCollector(f"http://{address}:{PORT}/own/path")
        await own.send(BODY)
    (target, first), (_, second), (own_target, third) = at.seen
    assert (target, own_target) == (METRICS_PATH, "/own/path")
    assert first["content-type"] == "application/x-protobuf"
    assert first["content-encoding"] == "gzip"
    assert first["content-length"] == str(len(BODY))
    assert first["host"] == f"{address}:{PORT}"
    assert [each.get("authorization") for each in (first, second, third)] == [
        "Bearer one",
        "Bearer two",
        None,
    ]


@pytest.mark.parametrize("status", [302, 400, 401, 429, 503])
async def test_an_error_is_no_export(address: str, status: int) -> None:
    at, collector = HTTPCollector(), OTLPCollector(f"http://{address}:{PORT}")
    at.status = status
    async with collecting(at, address, PORT):
        assert await refusal(collector) is NotTaken.REFUSED


async def test_nobody_there_is_unreachable(address: str) -> None:
    collector = OTLPCollector(f"http://{address}:{PORT}")
    assert await refusal(collector) is NotTaken.UNREACHABLE


async def test_a_file_that_is_gone_is_said_and_nothing_is_sent(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "headers"
    file.touch(0o600)
    at, collector = HTTPCollector(), OTLPCollector(f"http://{address}:{PORT}", headers_file=file)
    file.unlink()
    async with collecting(at, address, PORT):
        assert await refusal(collector) is NotTaken.NOT_SENT
    assert not at.seen


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x16\x03\x01",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000,
        b"\x00" * 100_000,
    ],
)
async def test_hostile_answers_are_unreachable(address: str, answer: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(PORT, host=address)
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        assert await refusal(OTLPCollector(f"http://{address}:{PORT}")) is NotTaken.UNREACHABLE
        nursery.cancel_scope.cancel()


async def test_an_answer_without_end_is_read_as_far_as_its_bound(address: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            with suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(bytes(1_000))

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(PORT, host=address)
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        collector = OTLPCollector(f"http://{address}:{PORT}")
        assert len(await collector.send(BODY)) == ANSWER_BYTES_MAX
        nursery.cancel_scope.cancel()


async def test_a_collector_that_says_nothing_has_its_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_collector, "REQUEST_SECONDS_MAX", 0.05)
    # The kernel connects; nobody reads.
    (listener,) = await trio.open_tcp_listeners(PORT, host=address)
    async with listener:
        collector = OTLPCollector(f"http://{address}:{PORT}")
        assert await refusal(collector) is NotTaken.UNREACHABLE


async def test_https_asks_for_a_certificate_that_is_believed(address: str, tmp_path: Path) -> None:
    config = fenced_cluster(tmp_path)
    tls = TLSSettings(mode=TLSMode.ENFORCING)
    config = msgspec.structs.replace(config, tls=tls)
    make_certificates(config, tmp_path / "tls", now=dt.datetime.now(dt.UTC))
    files = tls.files("a1", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate_file, files.key_file)
    at = HTTPCollector()
    ours = ssl.create_default_context(cafile=files.ca_file)
    ours.check_hostname = False
    async with collecting(at, address, PORT, context):
        url = f"HTTPS://{address}:{PORT}"
        await OTLPCollector(url, ssl_context=ours).send(BODY)
        stranger = OTLPCollector(url, ssl_context=ssl.create_default_context())
        assert await refusal(stranger) is NotTaken.UNREACHABLE
    assert len(at.seen) == 1
