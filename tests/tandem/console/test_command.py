"""Whether a console may start, and where; over sockets, with a cluster in memory."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import RouteNotFoundError
from tandem.cluster_file.load import load_config
from tandem.console.command import ConsoleOptions, run_console
from tandem.console.errors import ConsoleError
from tandem.tls_files import TLSFileError
from tests.support import certificates
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.client.fake_broker import FakeNetwork
from tests.tandem.console.fake_cluster import ADDRESSES, FakeCluster
from tests.tandem.console.running_console import Answer, parsed


def options(**changes: object) -> ConsoleOptions:
    facts: dict[str, object] = {
        "access": ClusterAccess(ADDRESSES, "me", "my-secret", signatures="any"),
        "config": None,
        "host": "127.0.0.1",
        "port": 0,
        "host_names": [],
        "certificate_file": "",
        "key_file": "",
        "reports": Path("/nowhere"),
    }
    return ConsoleOptions(**{**facts, **changes})  # type: ignore[arg-type]


def with_users() -> FakeCluster:
    cluster = FakeCluster()
    cluster.secrets = {"shop": "secret-of-shop"}
    return cluster


@asynccontextmanager
async def started(wanted: ConsoleOptions, cluster: FakeCluster) -> AsyncIterator[list[str]]:
    """Have a console that runs, and what it has said."""
    said: list[str] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            network = FakeNetwork(nursery, cluster.brokers)
            run = partial(run_console, open_stream=network.open_stream)
            nursery.start_soon(run, wanted, said.append)
            while len(said) < 2:
                await trio.sleep(0.01)
            yield said
            nursery.cancel_scope.cancel()


async def refused(wanted: ConsoleOptions, cluster: FakeCluster) -> Exception:
    """Return why a console does not start."""
    async with trio.open_nursery() as nursery:
        network = FakeNetwork(nursery, cluster.brokers)
        with pytest.raises((ConsoleError, TLSFileError, RouteNotFoundError)) as caught:
            await run_console(wanted, print, network.open_stream)
        nursery.cancel_scope.cancel()
    return caught.value


def url_in(said: list[str]) -> tuple[str, int, str]:
    """Return scheme, port and token of what was printed."""
    url = said[0].rpartition(" ")[2]
    place, _, token = url.partition("/#token=")
    scheme, _, host = place.partition("://")
    return scheme, int(host.rstrip("/").rpartition(":")[2]), token


async def logged_in(port: int, token: str) -> Answer:
    """Log in with the token, and have what is answered."""
    body = json.dumps({"token": token}).encode()
    head = (
        f"POST /api/v1/session HTTP/1.1\r\nHost: localhost:{port}\r\n"
        f"Origin: http://localhost:{port}\r\nX-Tandem: 1\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return await asked(port, head.encode() + body)


async def asked(port: int, request: bytes) -> Answer:
    """Send a request over a connection of its own, and read the answer to its end."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        return parsed(b"".join([bytes(part) async for part in stream]))


async def test_it_says_where_it_is_and_how_one_logs_in() -> None:
    async with started(options(), FakeCluster()) as said:
        scheme, port, token = url_in(said)
        assert (scheme, len(token)) == ("http", 43)
        answer = await logged_in(port, token)
        assert answer.json["logged_in"]
        assert answer.headers["set-cookie"].startswith(f"tandem-{port}=")
        assert token not in said[-1]
        assert "#token=" in said[-1]


async def test_the_keys_of_whoever_starts_it_are_lent_to_nobody() -> None:
    cluster = FakeCluster()
    mine = ClusterAccess(ADDRESSES, secret="of the cluster", as_operator=True, signatures="any")
    async with started(options(access=mine), cluster) as said:
        _, port, token = url_in(said)
        cookie = (await logged_in(port, token)).headers["set-cookie"].partition(";")[0]
        head = f"GET /api/v1/topics HTTP/1.1\r\nHost: localhost:{port}\r\nCookie: {cookie}\r\n"
        answer = await asked(port, f"{head}Connection: close\r\n\r\n".encode())
    assert answer.status == 200
    requests = [each for broker in cluster.brokers.values() for each in broker.requests]
    assert len(requests) > 2
    assert not [each for each in requests if "AccessKey" in each.ext_fields()]


async def test_a_cluster_with_users_has_no_token_and_lends_no_keys() -> None:
    async with started(options(), with_users()) as said:
        assert "#token" not in said[0]
        assert not url_in(said)[2]


async def test_with_a_certificate_it_speaks_tls_alone() -> None:
    files = certificates.files("console", "127.0.0.1")
    wanted = options(certificate_file=files.certificate_file, key_file=files.key_file)
    async with started(wanted, with_users()) as said:
        scheme, port, _ = url_in(said)
        assert scheme == "https"
        plain = await trio.open_tcp_stream("127.0.0.1", port)
        secured = trio.SSLStream(
            plain, files.client_context(), server_hostname="127.0.0.1", https_compatible=True
        )
        await secured.send_all(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        assert parsed(b"".join([bytes(part) async for part in secured])).status == 200
        await secured.aclose()
        async with await trio.open_tcp_stream("127.0.0.1", port) as clear:
            await clear.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
                assert b"HTTP" not in await clear.receive_some()
                raise trio.BrokenResourceError


@pytest.mark.parametrize(
    ("changes", "cluster"),
    [
        ({"host": "10.1.2.3"}, FakeCluster()),
        ({"host": "10.1.2.3"}, with_users()),
        ({"host": "0.0.0.0", "host_names": ["ops"]}, with_users()),
        ({"host": "::", "host_names": ["ops"]}, with_users()),
        ({"host": "0.0.0.0"}, with_users()),
        ({"host": "console.example"}, FakeCluster()),
        ({"host_names": ["http://ops.example"]}, FakeCluster()),
        ({"host_names": ["ops.example:80"]}, FakeCluster()),
        ({"host_names": [""]}, FakeCluster()),
        ({"certificate_file": "/a"}, FakeCluster()),
        ({"key_file": "/a"}, FakeCluster()),
        ({"certificate_file": "/a", "key_file": "/b"}, FakeCluster()),
    ],
)
async def test_it_does_not_start_where_it_must_not(
    changes: dict[str, object], cluster: FakeCluster
) -> None:
    await refused(options(**changes), cluster)


async def test_tls_alone_is_not_enough_beyond_this_machine() -> None:
    files = certificates.files("console", "127.0.0.1")
    pair = {"certificate_file": files.certificate_file, "key_file": files.key_file}
    error = await refused(options(host="10.1.2.3", **pair), FakeCluster())
    assert isinstance(error, ConsoleError)


async def test_a_port_that_is_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = await refused(options(port=port), FakeCluster())
    assert isinstance(error, ConsoleError)
    assert str(port) in str(error)
    assert "\n" not in str(error)


async def test_without_a_file_somebody_has_to_answer() -> None:
    cluster = FakeCluster()
    cluster.brokers.clear()
    assert isinstance(await refused(options(), cluster), RouteNotFoundError)
    wanted = options(config=load_config(ROOT / "cluster.yaml"))
    async with started(wanted, cluster) as said:
        assert "#token=" in said[0]
