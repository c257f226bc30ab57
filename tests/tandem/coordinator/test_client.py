import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from tandem.cluster_file.choices import CoordinatorKind
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.coordinator.client import EtcdClient, connect, endpoint_url
from tandem.coordinator.interface import (
    Compare,
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    Put,
)
from tests.tandem.coordinator.contract import (
    COORDINATOR_CONTRACTS,
    put,
    watch_is_ended_by_compaction,
)
from tests.tandem.coordinator.embedded import connected, proxied, running_server
from tests.tandem.coordinator.real_etcd import (
    Etcd,
    Server,
    embedded_process,
    find_leader,
    free_ports,
    make_certificates,
    protect,
    running_etcd,
    start_etcd,
    stop_etcd,
)

PREFIXES = (f"/checked/{number}/" for number in itertools.count())


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for all checks that do not hurt it."""
    members = start_etcd(tmp_path_factory.mktemp("etcd"))
    yield members[0]
    stop_etcd(members)


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    await etcd.wait_healthy()
    client = EtcdClient([etcd.endpoint])
    yield client
    await client.aclose()


@pytest.mark.fault
@pytest.mark.parametrize("name", COORDINATOR_CONTRACTS)
async def test_etcd_is_a_coordinator(client: EtcdClient, name: str) -> None:
    await COORDINATOR_CONTRACTS[name](client, next(PREFIXES))


@pytest.mark.fault
async def test_a_watch_of_a_compacted_past_is_ended(client: EtcdClient, etcd: Etcd) -> None:
    async def compact(revision: int) -> None:
        await etcd.post("/v3/kv/compaction", b'{"revision":"%d"}' % revision)

    await watch_is_ended_by_compaction(client, next(PREFIXES), compact)


# --- endpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("127.0.0.1:2379", "http://127.0.0.1:2379"),
        ("https://etcd.example:2379/", "https://etcd.example:2379"),
        ("[::1]:2379", "http://[::1]:2379"),
    ],
)
def test_an_endpoint_is_host_and_port_or_a_url(endpoint: str, url: str) -> None:
    assert endpoint_url(endpoint, "http") == url


@pytest.mark.parametrize("endpoint", ["etcd", "etcd:x", "ftp://etcd:1", "http://etcd:1/v3", ""])
def test_what_is_no_endpoint_is_refused_with_the_form(endpoint: str) -> None:
    with pytest.raises(CoordinatorRefusedError, match="write host:port"):
        EtcdClient([endpoint])


def test_a_client_without_endpoints_is_refused() -> None:
    with pytest.raises(CoordinatorRefusedError, match="name at least one"):
        EtcdClient([])


def etcd_at(*endpoints: str, **others: str) -> CoordinatorSettings:
    settings = CoordinatorSettings(kind=CoordinatorKind.ETCD, endpoints=list(endpoints))
    return msgspec.structs.replace(settings, **others)


def test_settings_say_where_and_reach_says_how() -> None:
    assert connect(CoordinatorSettings())._endpoints == ["http://127.0.0.1:10920"]
    assert connect(CoordinatorSettings(), reach="10.0.0.9")._endpoints == ["http://10.0.0.9:10920"]
    etcd = etcd_at("http://10.0.0.1:2379", "10.0.0.2:2380")
    assert connect(etcd)._endpoints == ["http://10.0.0.1:2379", "http://10.0.0.2:2380"]
    there = connect(etcd, reach="10.0.0.9")._endpoints
    assert there == ["http://10.0.0.9:2379", "http://10.0.0.9:2380"]
    assert connect(etcd_at("https://a:1"))._endpoints == ["https://a:1"]


def test_files_of_the_settings_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with pytest.raises(CoordinatorRefusedError, match=f"password_file '{absent}' cannot be read"):
        connect(etcd_at("a:1", user="u", password_file=absent))
    with pytest.raises(CoordinatorRefusedError, match=f"ca_file '{absent}'.*cannot be used"):
        connect(etcd_at("a:1", ca_file=absent))


async def test_an_endpoint_where_nobody_is_is_passed_over_and_asked_last_from_then_on() -> None:
    (nobody,) = free_ports(1)
    async with running_server() as (_, port), proxied(port) as proxy:
        client = EtcdClient([f"127.0.0.1:{nobody}", f"127.0.0.1:{proxy.port}"])
        await put(client, "/a")
        assert client._first == 1
        async with client.watch("/", 1) as batches:
            assert len(await anext(batches)) == 1
        await client.aclose()
        client = EtcdClient([f"127.0.0.1:{nobody}"] * 2)
        with pytest.raises(
            CoordinatorUnavailableError,
            match=r"^(no connection to \S+: Connection refused(; )?){2}$",
        ):
            await client.grant(5)
        await client.aclose()


async def test_what_does_no_harm_twice_is_sent_to_the_next_endpoint() -> None:
    async with running_server() as (_, port), proxied(port) as proxy:
        client = EtcdClient([f"127.0.0.1:{proxy.port}", f"127.0.0.1:{port}"])
        lease = await client.grant(60)
        await put(client, "/a", lease_id=lease.lease_id)
        proxy.loses_replies = True
        assert list((await client.read("/")).values) == ["/a"]
        client._first = 0
        assert await client.keep_alive(lease.lease_id) == 60
        client._first = 0
        await client.revoke(lease.lease_id)
        assert (await client.read("/")).values == {}
        await client.aclose()


async def test_a_lost_reply_leaves_the_outcome_open_and_a_read_settles_it() -> None:
    async with running_server() as (_, port), proxied(port) as proxy:
        client = EtcdClient([f"127.0.0.1:{proxy.port}", f"127.0.0.1:{port}"])
        proxy.loses_replies = True
        with pytest.raises(CoordinatorUnavailableError, match="broke"):
            await client.transact([Compare("/a", 0)], [Put("/a", b"mine")])
        # It was not sent a second time, which would have found the key there.
        assert proxy.requests_count >= 1
        assert (await client.read("/")).values["/a"].value == b"mine"
        with pytest.raises(CoordinatorUnavailableError):
            client._first = 0
            await client.grant(60)
        await client.aclose()


async def test_a_silent_endpoint_costs_one_call_whoever_gives_up() -> None:
    async with running_server() as (_, port), proxied(port) as proxy:
        proxy.is_silent = True
        endpoints = [f"127.0.0.1:{proxy.port}", f"127.0.0.1:{port}"]
        client = EtcdClient(endpoints)
        with trio.move_on_after(0.1) as waited:
            await client.transact([], [Put("/a", b"")])
        assert waited.cancelled_caught
        with trio.fail_after(1):
            await put(client, "/a")
        await client.aclose()
        client = EtcdClient(endpoints, request_seconds_max=0.1)
        with pytest.raises(CoordinatorUnavailableError, match=r"did not answer in 0\.1 s"):
            await client.transact([], [Put("/a", b"")])
        assert client._first == 1
        client._first = 0
        with trio.fail_after(1):
            async with client.watch("/", 1) as batches:
                await anext(batches)
        await client.aclose()


# --- answers -----------------------------------------------------------------------------------


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[EtcdClient]:
    """A client of a server that gives these answers, one for each connection, and hangs up."""
    left = list(answers)

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(left.pop(0))

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        async with connected(listener.socket.getsockname()[1]) as client:
            yield client
        nursery.cancel_scope.cancel()


def http(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    "answer", [b"", b"what\r\n\r\n", http(b"<html>"), http(b"", "502 Bad"), http(b"{}")[:-1]]
)
async def test_what_is_no_answer_leaves_the_outcome_open(answer: bytes) -> None:
    async with scripted(answer, answer) as client:
        with pytest.raises(CoordinatorUnavailableError):
            await client.grant(5)
        with pytest.raises(CoordinatorUnavailableError):
            async with client.watch("/", 1):
                pytest.fail("this is no watch")


async def test_a_watch_whose_stream_breaks_ends() -> None:
    created = b'{"result":{"created":true}}\n'
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(created), created)
    end = b"0\r\n\r\n"
    for rest in (b"", end, b"5\r\n<htm\n\r\n"):
        async with scripted(head + chunk + rest) as client, client.watch("/", 1) as batches:
            for _ in range(2):
                with pytest.raises(CoordinatorUnavailableError):
                    await anext(batches)


# --- coordinators that are hurt ------------------------------------------------------------------


async def write_until(client: EtcdClient, key: str, enough: trio.Event) -> tuple[int, int]:
    """Count up in a key with compare-and-swap; return how far it was told, and may have come."""
    told = possible = 0
    while not enough.is_set() or told < possible:
        try:
            value = (await client.read(key)).values.get(key)
            known = int(value.value) if value else 0
            # The answer that was lost: the read settles it, either way.
            assert told <= known <= possible
            told, possible = known, known + 1
            revision = value.mod_revision if value else 0
            result = await client.transact(
                [Compare(key, revision)], [Put(key, str(possible).encode())]
            )
        except CoordinatorUnavailableError:
            await trio.sleep(0.02)
        else:
            assert result.succeeded
            told = possible
    return told, possible


@pytest.fixture(params=["etcd", "embedded"])
def killable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A coordinator that is a process."""
    server: Server
    if request.param == "etcd":
        (server,) = start_etcd(tmp_path)
    else:
        server = embedded_process(tmp_path)
        server.start()
    yield server
    stop_etcd([server])


@pytest.mark.fault
async def test_a_coordinator_killed_under_load_loses_no_answer(killable: Server) -> None:
    await killable.wait_healthy()
    client = EtcdClient([killable.endpoint])
    lease = await client.grant(5)
    enough = trio.Event()

    async def hurt() -> None:
        for _ in range(2):
            await trio.sleep(0.3)
            killable.kill()
            with pytest.raises(CoordinatorUnavailableError):
                await client.keep_alive(lease.lease_id)
            killable.start()
            await killable.wait_healthy()
        enough.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurt)
        told, possible = await write_until(client, "/count", enough)
    assert told == possible > 10
    assert await client.keep_alive(lease.lease_id) == lease.ttl_seconds
    await client.aclose()


@pytest.mark.fault
async def test_a_cluster_of_etcd_goes_on_without_its_leader(tmp_path: Path) -> None:
    with running_etcd(tmp_path, 3) as members:
        for member in members:
            await member.wait_healthy()
        client = EtcdClient([member.endpoint for member in members])
        lease = await client.grant(10)
        enough = trio.Event()

        async def hurt(number: signal.Signals) -> None:
            leader = await find_leader(members)
            leader.send_signal(number)
            with trio.fail_after(10):
                while True:
                    with suppress(CoordinatorUnavailableError):
                        assert await client.keep_alive(lease.lease_id)
                        await put(client, "/after")
                        break
            if number is signal.SIGSTOP:
                leader.send_signal(signal.SIGCONT)
            else:
                leader.kill()
                leader.start()
                await leader.wait_healthy()

        async def hurt_both_ways() -> None:
            await hurt(signal.SIGKILL)
            await hurt(signal.SIGSTOP)
            enough.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hurt_both_ways)
            told, possible = await write_until(client, "/count", enough)
        assert told == possible > 10
        await client.aclose()


@pytest.mark.fault
async def test_a_user_is_authenticated_and_again_when_its_token_ends(tmp_path: Path) -> None:
    with running_etcd(tmp_path, arguments=["--auth-token-ttl=1"]) as members:
        etcd = members[0]
        await etcd.wait_healthy()
        await protect(etcd, "root", "secret")
        anybody = EtcdClient([etcd.endpoint])
        with pytest.raises(CoordinatorRefusedError, match="set user and password_file"):
            await anybody.read("/")
        await anybody.aclose()
        wrong = EtcdClient([etcd.endpoint], user="root", password="guess")
        with pytest.raises(CoordinatorRefusedError, match="correct the user and the password"):
            await wrong.read("/")
        await wrong.aclose()
        client = EtcdClient([etcd.endpoint], user="root", password="secret")
        for name in (
            "a_transaction_is_done_if_all_compares_hold",
            "a_lease_that_is_gone_is_told",
            "a_watch_tells_every_change_in_order",
        ):
            await COORDINATOR_CONTRACTS[name](client, next(PREFIXES))
        client._token = "stale.1"
        await put(client, "/a")
        client._token = "stale.1"
        async with client.watch("/a", 1) as batches:
            assert await anext(batches)
        await client.aclose()


@pytest.mark.fault
async def test_etcd_is_spoken_to_over_tls_by_certificate(tmp_path: Path) -> None:
    ca, server, node = make_certificates(tmp_path)
    arguments = [
        f"--cert-file={server}.crt",
        f"--key-file={server}.key",
        f"--trusted-ca-file={ca}.crt",
        "--client-cert-auth",
    ]
    with running_etcd(tmp_path, scheme="https", arguments=arguments) as members:
        settings = etcd_at(
            members[0].endpoint,
            ca_file=f"{ca}.crt",
            cert_file=f"{node}.crt",
            key_file=f"{node}.key",
        )
        client = connect(settings)
        with trio.fail_after(10):
            while True:
                with suppress(CoordinatorUnavailableError):
                    await client.read("/")
                    break
                await trio.sleep(0.05)
        for name in ("keys_go_with_their_lease", "a_watch_tells_every_change_in_order"):
            await COORDINATOR_CONTRACTS[name](client, next(PREFIXES))
        await client.aclose()
        without = connect(msgspec.structs.replace(settings, cert_file="", key_file=""))
        with pytest.raises(CoordinatorUnavailableError, match="certificate"):
            await without.read("/")
        await without.aclose()
        other_ca, _, _ = make_certificates(tmp_path / "other")
        wary = connect(msgspec.structs.replace(settings, ca_file=f"{other_ca}.crt"))
        with pytest.raises(
            CoordinatorUnavailableError, match=r": certificate verify failed: [^(]*; set ca_file"
        ):
            await wary.read("/")
        await wary.aclose()
        elsewhere = members[0].endpoint.replace("127.0.0.1", "localhost")
        lost = connect(msgspec.structs.replace(settings, endpoints=[elsewhere]))
        with pytest.raises(CoordinatorUnavailableError, match=r"'localhost'; name it in endpoints"):
            await lost.read("/")
        await lost.aclose()


async def test_tls_where_there_is_none_is_told(tmp_path: Path) -> None:
    ca, _, _ = make_certificates(tmp_path)
    async with running_server() as (_, port):
        client = connect(etcd_at(f"https://127.0.0.1:{port}", ca_file=f"{ca}.crt"))
        with pytest.raises(CoordinatorUnavailableError, match="its endpoints begin with http://"):
            await client.read("/")
        await client.aclose()
