import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
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
    CoordinatorSettingError,
    CoordinatorUnavailableError,
    NoAnswer,
    Put,
    RefusalCause,
)
from tandem.coordinator.troubles import TLSTrouble
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.secret import SECRET
from tests.tandem.coordinator.contract import (
    COORDINATOR_CONTRACTS,
    put,
    watch_is_ended_by_compaction,
)
from tests.tandem.coordinator.embedded import Proxy, client_of, proxied, running_server
from tests.tandem.coordinator.real_etcd import (
    Etcd,
    Server,
    embedded_process,
    find_leader,
    make_certificates,
    protect,
    running_etcd,
    start_etcd,
    stop_etcd,
)

# One etcd for all that do not hurt it.
pytestmark = pytest.mark.xdist_group("etcd")

PREFIXES = (f"/checked/{number}/" for number in itertools.count())


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for all checks that do not hurt it."""
    members = start_etcd(tmp_path_factory.mktemp("etcd"))
    yield members[0]
    stop_etcd(members)


def patient(endpoints: list[str], **access: str) -> EtcdClient:
    """A client whose requests may take as long as a busy machine takes."""
    return EtcdClient(
        endpoints,
        user=access.get("user", ""),
        password=access.get("password", ""),
        request_seconds_max=PATIENCE_SECONDS,
    )


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    await etcd.wait_healthy()
    async with aclosing(patient([etcd.endpoint])) as client:
        yield client


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
    with pytest.raises(CoordinatorSettingError, match="write host:port") as caught:
        EtcdClient([endpoint])
    assert caught.value.setting == "endpoints"


def test_a_client_without_endpoints_is_refused() -> None:
    with pytest.raises(CoordinatorSettingError) as caught:
        EtcdClient([])
    assert caught.value.setting == "endpoints"


def etcd_at(*endpoints: str, **others: str) -> CoordinatorSettings:
    settings = CoordinatorSettings(kind=CoordinatorKind.ETCD, endpoints=list(endpoints))
    return msgspec.structs.replace(settings, **others)


def test_settings_say_where_and_reach_says_how() -> None:
    assert connect(CoordinatorSettings(), secret=SECRET)._endpoints == ["http://127.0.0.1:10920"]
    assert connect(CoordinatorSettings(), reach="10.0.0.9", secret=SECRET)._endpoints == [
        "http://10.0.0.9:10920"
    ]
    etcd = etcd_at("http://10.0.0.1:2379", "10.0.0.2:2380")
    assert connect(etcd, secret=SECRET)._endpoints == [
        "http://10.0.0.1:2379",
        "http://10.0.0.2:2380",
    ]
    there = connect(etcd, reach="10.0.0.9", secret=SECRET)._endpoints
    assert there == ["http://10.0.0.9:2379", "http://10.0.0.9:2380"]
    assert connect(etcd_at("https://a:1"), secret=SECRET)._endpoints == ["https://a:1"]


def test_files_of_the_settings_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with pytest.raises(CoordinatorSettingError) as caught:
        connect(etcd_at("a:1", user="u", password_file=absent), secret=SECRET)
    assert caught.value.setting == "password_file"
    readable = tmp_path / "password"
    readable.write_text("secret\n")
    readable.chmod(0o644)
    with pytest.raises(CoordinatorSettingError) as caught:
        connect(etcd_at("a:1", user="u", password_file=str(readable)), secret=SECRET)
    assert caught.value.setting == "password_file"
    readable.chmod(0o600)
    connect(etcd_at("a:1", user="u", password_file=str(readable)), secret=SECRET)
    with pytest.raises(CoordinatorSettingError, match=f"ca_file '{absent}'") as caught:
        connect(etcd_at("a:1", ca_file=absent), secret=SECRET)
    assert caught.value.setting == "ca_file"
    with pytest.raises(CoordinatorSettingError, match=f"cert_file '{absent}'") as caught:
        connect(etcd_at("https://a:1", cert_file=absent), secret=SECRET)
    assert caught.value.setting == "cert_file"


async def test_an_endpoint_where_nobody_is_is_passed_over_and_asked_last_from_then_on() -> None:
    nobody = f"{own_network()}.1:2379"
    async with running_server() as (_, port), proxied(port) as proxy:
        endpoints = [nobody, f"127.0.0.1:{proxy.port}"]
        async with aclosing(client_of(*endpoints)) as client:
            await put(client, "/a")
            assert client._first == 1
            async with client.watch("/", 1) as batches:
                assert len(await anext(batches)) == 1
        async with aclosing(client_of(nobody, nobody)) as client:
            with pytest.raises(CoordinatorUnavailableError) as caught:
                await client.grant(5)
            assert caught.value.cause is NoAnswer.NO_CONNECTION
            assert str(caught.value).count("no connection to ") == 2


@asynccontextmanager
async def proxied_and_plain() -> AsyncIterator[tuple[Proxy, EtcdClient]]:
    """A client with two ways to one coordinator, the first through a proxy."""
    async with running_server() as (_, port), proxied(port) as proxy:
        endpoints = [f"127.0.0.1:{proxy.port}", f"127.0.0.1:{port}"]
        async with aclosing(client_of(*endpoints)) as client:
            yield proxy, client


async def test_what_does_no_harm_twice_is_sent_to_the_next_endpoint() -> None:
    async with proxied_and_plain() as (proxy, client):
        lease = await client.grant(60)
        await put(client, "/a", lease_id=lease.lease_id)
        proxy.loses_replies = True
        assert list((await client.read("/")).values) == ["/a"]
        client._first = 0
        assert await client.keep_alive(lease.lease_id) == 60
        client._first = 0
        await client.revoke(lease.lease_id)
        assert (await client.read("/")).values == {}


async def test_a_lost_reply_leaves_the_outcome_open_and_a_read_settles_it() -> None:
    async with proxied_and_plain() as (proxy, client):
        await client.read("/")  # for its token
        proxy.loses_replies = True
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await client.transact([Compare("/a", 0)], [Put("/a", b"mine")])
        assert caught.value.cause is NoAnswer.BROKEN
        # It was not sent a second time, which would have found the key there.
        assert proxy.requests_count >= 1
        assert (await client.read("/")).values["/a"].value == b"mine"
        with pytest.raises(CoordinatorUnavailableError):
            client._first = 0
            await client.grant(60)


async def test_a_silent_endpoint_costs_one_call_whoever_gives_up() -> None:
    async with proxied_and_plain() as (proxy, client):
        proxy.is_silent = True
        with trio.move_on_after(0.1) as waited:
            await client.transact([], [Put("/a", b"")])
        assert waited.cancelled_caught
        with trio.fail_after(PATIENCE_SECONDS):
            await put(client, "/a")
        endpoints = client._endpoints
        async with aclosing(client_of(*endpoints)) as impatient:
            impatient._first = 1
            await impatient.read("/")  # for its token
            impatient._first = 0
            impatient._request_seconds_max = 0.1
            with pytest.raises(CoordinatorUnavailableError) as caught:
                await impatient.transact([], [Put("/a", b"")])
            assert caught.value.cause is NoAnswer.LATE
            assert impatient._first == 1
            with trio.fail_after(PATIENCE_SECONDS):
                while not await watches(impatient):
                    # On a busy machine the other endpoint needs longer than that, too.
                    impatient._request_seconds_max *= 2


async def watches(client: EtcdClient) -> bool:
    """Whether a watch begins although the first endpoint that is asked is silent."""
    client._first = 0
    with suppress(CoordinatorUnavailableError):
        async with client.watch("/", 1) as batches:
            await anext(batches)
        return True
    return False


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
        endpoint = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        async with aclosing(patient([endpoint])) as client:
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


class Counter:
    """Counts up in a key, one compare after the other, whatever happens to the coordinator."""

    def __init__(self, client: EtcdClient, key: str) -> None:
        self._client = client
        self._key = key
        self._stopping = False
        self._stopped = trio.Event()
        self.told = 0
        """The last value that was acknowledged."""
        self.possible = 0
        """The value that may be there: a reply was lost."""

    async def run(self) -> None:
        while not self._stopping or self.told != self.possible:
            try:
                await self._count()
            except CoordinatorUnavailableError:
                await trio.sleep(0.02)
        self._stopped.set()

    async def _count(self) -> None:
        value = (await self._client.read(self._key)).values.get(self._key)
        known = int(value.value) if value else 0
        # The answer that was lost: the read settles it, either way.
        assert self.told <= known <= self.possible
        self.told, self.possible = known, known + 1
        compare = Compare(self._key, value.mod_revision if value else 0)
        put = Put(self._key, str(self.possible).encode())
        assert (await self._client.transact([compare], [put])).succeeded
        self.told = self.possible

    async def goes_on(self) -> None:
        """Wait until it has counted some further."""
        wanted = self.told + 5
        await until(lambda: self.told >= wanted)

    async def stop(self) -> None:
        """Wait until the last answer is there."""
        self._stopping = True
        with trio.fail_after(PATIENCE_SECONDS):
            await self._stopped.wait()


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
    async with aclosing(killable.client()) as client, trio.open_nursery() as nursery:
        lease = await client.grant(60)
        counter = Counter(client, "/count")
        nursery.start_soon(counter.run)
        for _ in range(2):
            await counter.goes_on()
            killable.kill()
            with pytest.raises(CoordinatorUnavailableError):
                await client.keep_alive(lease.lease_id)
            killable.start()
            await killable.wait_healthy()
        await counter.goes_on()
        await counter.stop()
        assert counter.told == counter.possible
        assert await client.keep_alive(lease.lease_id) == lease.ttl_seconds


@pytest.mark.fault
async def test_a_cluster_of_etcd_goes_on_without_its_leader(tmp_path: Path) -> None:
    with running_etcd(tmp_path, 3) as members:
        for member in members:
            await member.wait_healthy()
        endpoints = [member.endpoint for member in members]
        async with aclosing(EtcdClient(endpoints)) as client, trio.open_nursery() as nursery:
            lease = await client.grant(60)
            counter = Counter(client, "/count")
            nursery.start_soon(counter.run)
            for number in (signal.SIGKILL, signal.SIGSTOP):
                await counter.goes_on()
                leader = await find_leader(members)
                leader.send_signal(number)
                await counter.goes_on()
                await kept_alive(client, lease.lease_id)
                if number is signal.SIGSTOP:
                    leader.send_signal(signal.SIGCONT)
                else:
                    leader.kill()
                    leader.start()
                    await leader.wait_healthy()
            await counter.goes_on()
            await counter.stop()
            assert counter.told == counter.possible


async def kept_alive(client: EtcdClient, lease_id: int) -> None:
    """Renew a lease; members that are not there are passed over."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            with suppress(CoordinatorUnavailableError):
                assert await client.keep_alive(lease_id)
                return


@pytest.mark.fault
async def test_a_user_is_authenticated_and_again_when_its_token_ends(tmp_path: Path) -> None:
    with running_etcd(tmp_path, arguments=["--auth-token-ttl=1"]) as members:
        etcd = members[0]
        await etcd.wait_healthy()
        await protect(etcd, "root", "secret")
        async with aclosing(patient([etcd.endpoint])) as anybody:
            with pytest.raises(CoordinatorRefusedError) as caught:
                await anybody.read("/")
            assert caught.value.cause is RefusalCause.USER_NEEDED
        async with aclosing(patient([etcd.endpoint], user="root", password="guess")) as wrong:
            with pytest.raises(CoordinatorRefusedError) as caught:
                await wrong.read("/")
            assert caught.value.cause is RefusalCause.PASSWORD
        async with aclosing(patient([etcd.endpoint], user="root", password="secret")) as client:
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
        async with aclosing(connect(settings, secret=SECRET)) as client:
            with trio.fail_after(PATIENCE_SECONDS):
                while True:
                    with suppress(CoordinatorUnavailableError):
                        await client.read("/")
                        break
                    await trio.sleep(0.05)
            for name in ("keys_go_with_their_lease", "a_watch_tells_every_change_in_order"):
                await COORDINATOR_CONTRACTS[name](client, next(PREFIXES))
        await refused(msgspec.structs.replace(settings, cert_file="", key_file=""), "certificate")
        other_ca, _, _ = make_certificates(tmp_path / "other")
        await refused(
            msgspec.structs.replace(settings, ca_file=f"{other_ca}.crt"),
            TLSTrouble.UNKNOWN_CERTIFICATE.value,
        )
        elsewhere = members[0].endpoint.replace("127.0.0.1", "localhost")
        await refused(
            msgspec.structs.replace(settings, endpoints=[elsewhere]),
            TLSTrouble.OTHER_NAME.value,
        )


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    _, _, node = make_certificates(tmp_path)
    key = Path(f"{node}.key")
    settings = etcd_at("https://a:1", cert_file=f"{node}.crt", key_file=str(key))
    key.chmod(0o640)
    with pytest.raises(CoordinatorSettingError, match="chmod 600") as caught:
        connect(settings, secret=SECRET)
    assert caught.value.setting == "key_file"
    key.chmod(0o600)
    connect(settings, secret=SECRET)


async def refused(settings: CoordinatorSettings, remedy: str) -> None:
    """Expect that a client with these settings cannot read, and says what to do."""
    async with aclosing(connect(settings, secret=SECRET)) as client:
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await client.read("/")
    assert remedy in str(caught.value)


async def test_tls_where_there_is_none_is_told(tmp_path: Path) -> None:
    ca, _, _ = make_certificates(tmp_path)
    async with running_server() as (_, port):
        settings = etcd_at(f"https://127.0.0.1:{port}", ca_file=f"{ca}.crt")
        await refused(settings, TLSTrouble.CLEAR.value)
