import errno
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.etcd_v3 import AUTHENTICATE
from tandem.coordinator.interface import (
    Compare,
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    LeaseLostError,
    NoAnswer,
    Put,
    RefusalCause,
)
from tandem.coordinator.journal import DiskFile, Journal, JournalError, JournalFault
from tandem.coordinator.server import BODY_BYTES_MAX, CONNECTIONS_MAX, CoordinatorServer
from tandem.coordinator.tokens import USER
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, until
from tests.tandem.coordinator.contract import (
    COORDINATOR_CONTRACTS,
    put,
    watch_is_ended_by_compaction,
)
from tests.tandem.coordinator.embedded import PASSWORD, MemoryFile, connected, running_server

TOKEN: Final = b"@token@"


@pytest.fixture
async def client() -> AsyncIterator[EtcdClient]:
    async with running_server() as (_, port), connected(port) as client:
        yield client


async def say(port: int, data: bytes) -> bytes:
    """Send bytes, and that there will be no more; return all that is answered.

    TOKEN in them becomes a good one.
    """
    if TOKEN in data:
        asked = {"name": USER, "password": PASSWORD}
        reply = await say(port, request(AUTHENTICATE, json.dumps(asked).encode(), token=b""))
        token = json.loads(reply.partition(b"\r\n\r\n")[2])["token"]
        data = data.replace(TOKEN, token.encode())
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        await stream.send_eof()
        with trio.fail_after(PATIENCE_SECONDS):
            answer = b""
            while chunk := await stream.receive_some():
                answer += chunk
    return answer


def request(path: str, body: bytes, method: str = "POST", *, token: bytes = TOKEN) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    authorization = b"Authorization: %b\r\n" % token if token else b""
    return head.encode() + authorization + b"\r\n" + body


@pytest.mark.slow
@pytest.mark.parametrize("name", COORDINATOR_CONTRACTS)
async def test_the_embedded_one_is_a_coordinator(client: EtcdClient, name: str) -> None:
    await COORDINATOR_CONTRACTS[name](client, "/checked/")


async def test_a_watch_of_a_compacted_past_is_ended() -> None:
    async with running_server() as (_, port), connected(port) as client:

        async def compact(revision: int) -> None:
            body = json.dumps({"revision": str(revision)}).encode()
            assert b" 200 " in await say(port, request("/v3/kv/compaction", body))

        await watch_is_ended_by_compaction(client, "/checked/", compact)


# --- memory ------------------------------------------------------------------------------------


async def test_nobody_is_answered_before_the_disk_has_it() -> None:
    class SlowFile(MemoryFile):
        may_sync = trio.Event()

        def write(self, position: int, data: bytes) -> None:
            trio.from_thread.run(self.may_sync.wait)
            super().write(position, data)

    file = SlowFile()
    async with running_server(file) as (server, port), connected(port) as client:
        file.may_sync.set()
        lease_id = (await client.grant(60)).lease_id
        revision, count = (await client.read("/")).revision, server._journal.recorded_count
        async with client.watch("/", revision + 1) as batches:
            file.may_sync = trio.Event()
            told: list[str] = []

            async def write() -> None:
                await put(client, "/a")
                told.append("written")

            async def read() -> None:
                await until(lambda: server._journal.recorded_count > count)
                assert "/a" in (await client.read("/")).values
                told.append("read")

            async def follow() -> None:
                await anext(batches)
                told.append("watched")

            async with trio.open_nursery() as nursery:
                for task in (write, read, follow):
                    nursery.start_soon(task)
                await trio.sleep(0.15)
                assert told == []
                # A lease is kept alive meanwhile: nothing of that is on the disk.
                with trio.fail_after(PATIENCE_SECONDS):
                    await client.keep_alive(lease_id)
                file.may_sync.set()
            assert sorted(told) == ["read", "watched", "written"]


async def test_what_is_done_during_a_write_is_on_the_disk_with_the_next() -> None:
    gates = [trio.Event(), trio.Event()]

    class SlowFile(MemoryFile):
        def write(self, position: int, data: bytes) -> None:
            key = b"/a" if b"/a" in data else b"/b"
            trio.from_thread.run(gates[key == b"/b"].wait)
            super().write(position, data)

    async with running_server(SlowFile()) as (server, port), connected(port) as client:
        journal, told = server._journal, list[str]()
        revision, count = (await client.read("/")).revision, journal.recorded_count

        async def write(key: str) -> None:
            await put(client, key)
            told.append(key)

        async def follow() -> None:
            while len(told) < 4:
                told.append(f"watched {len(await anext(batches))}")

        async with client.watch("/", revision + 1) as batches, trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            nursery.start_soon(write, "/a")
            await until(lambda: journal.recorded_count > count and not journal.has_waiting)
            nursery.start_soon(write, "/b")
            await until(lambda: journal.has_waiting)
            gates[0].set()
            await until(lambda: len(told) >= 2)
            await trio.sleep(0.05)
            assert sorted(told) == ["/a", "watched 1"]
            gates[1].set()


async def test_many_changes_share_a_write() -> None:
    file = MemoryFile()
    async with running_server(file) as (_, port), connected(port) as client:
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(put, client, f"/{number}")
        assert file.writes_count < 40
        assert len((await client.read("/")).values) == 40


async def test_a_write_that_the_disk_does_not_take_is_answered_and_tried_again() -> None:
    """Nothing is acknowledged, nothing heaps up, leases are kept alive, and nobody restarts it."""
    file = MemoryFile()
    async with running_server(file) as (server, port), connected(port) as client:
        lease_id = (await client.grant(6000)).lease_id
        await put(client, "/a", b"kept")
        file.failing = "write"
        for _ in range(3):
            with pytest.raises(CoordinatorUnavailableError, match="no room; free space there"):
                await put(client, "/a", b"unknown")
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await client.read("/")
        assert (caught.value.cause, str(caught.value)) == (NoAnswer.SAID, server.trouble)
        assert server._journal.recorded_count == 3, "what was refused was done all the same"
        assert await client.keep_alive(lease_id) == 6000
        status = await say(port, request("/v3/maintenance/status", b"{}"))
        assert b'"errors":["no room; free space there"]' in status
        file.failing = ""
        await until(lambda: not server.trouble)
        assert (await client.read("/")).values["/a"].value == b"unknown"
        await put(client, "/a", b"again")
        assert b"errors" not in await say(port, request("/v3/maintenance/status", b"{}"))
        assert server.failure == ""
    async with running_server(file) as (_, port), connected(port) as client:
        assert (await client.read("/")).values["/a"].value == b"again"


async def test_a_failed_sync_ends_it_until_it_is_started_again() -> None:
    file = MemoryFile()
    async with running_server(file) as (server, port), connected(port) as client:
        await put(client, "/a", b"kept")
        file.failing = "sync"
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await put(client, "/a", b"unknown")
        file.failing = ""
        assert server.failure
        assert str(caught.value) == server.failure == server.trouble

        async def gone() -> None:
            while True:
                with pytest.raises(CoordinatorUnavailableError) as caught:
                    await client.read("/")
                if caught.value.cause is NoAnswer.NO_CONNECTION:
                    return

        with trio.fail_after(PATIENCE_SECONDS):
            await gone()
    async with running_server(file) as (_, port), connected(port) as client:
        assert (await client.read("/")).values["/a"].value in (b"kept", b"unknown")


async def test_after_a_restart_leases_run_in_full_and_revisions_go_on() -> None:
    file = MemoryFile()
    async with running_server(file) as (_, port), connected(port) as client:
        lease = await client.grant(60)
        revision = await put(client, "/a", lease_id=lease.lease_id)
    async with running_server(file) as (_, port), connected(port) as client:
        assert await client.keep_alive(lease.lease_id) == 60
        result = await client.transact([Compare("/a", revision)], [Put("/a", b"2")])
        assert (result.succeeded, result.revision) == (True, revision + 1)


async def test_a_client_goes_on_with_the_next_life(tmp_path: Path) -> None:
    host = f"{own_network()}.1"  # where nobody else gets the port meanwhile
    async with (
        running_server(DiskFile(tmp_path), host=host) as (_, port),
        connected(port, host) as client,
    ):
        await put(client, "/a", b"1")
        async with client.watch("/", 1) as batches:
            await anext(batches)
    async with connected(port, host) as client:
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await client.read("/")
        assert caught.value.cause is NoAnswer.NO_CONNECTION
        async with running_server(DiskFile(tmp_path), port, host):
            assert (await client.read("/")).values["/a"].value == b"1"
        async with running_server(DiskFile(tmp_path), port, host):
            # The connection of the life before is in the pool, and dead.
            assert (await client.read("/")).values["/a"].value == b"1"


async def test_a_damaged_journal_or_a_taken_port_is_told_and_lets_go(tmp_path: Path) -> None:
    with pytest.raises(JournalError) as caught:
        await CoordinatorServer(Journal(MemoryFile(b"what is this")), password=PASSWORD).listen(
            "127.0.0.1", 0
        )
    assert caught.value.fault is JournalFault.DAMAGED
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = CoordinatorServer(Journal(DiskFile(tmp_path)), password=PASSWORD)
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EADDRINUSE):
            await server.listen("127.0.0.1", taken.getsockname()[1])
    DiskFile(tmp_path).close()


# --- time --------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_pause_takes_nothing_from_a_lease() -> None:
    async with running_server() as (server, port), connected(port) as client:
        lease = await client.grant(2)
        await put(client, "/a", lease_id=lease.lease_id)
        server.pause()
        server.pause()
        with trio.move_on_after(0.1) as waited:
            await client.keep_alive(lease.lease_id)
        assert waited.cancelled_caught
        await trio.sleep(2.5)
        server.resume()
        assert await client.keep_alive(lease.lease_id) == 2
        assert list((await client.read("/")).values) == ["/a"]


@pytest.mark.slow
async def test_standing_still_takes_nothing_from_a_lease_but_time_does() -> None:
    file = MemoryFile()
    server = CoordinatorServer(Journal(file), password=PASSWORD)
    port = await server.listen("127.0.0.1", 0)
    # Not served for longer than the lease that comes out of the journal has.
    server._store.grant(7, 2, trio.current_time())
    await trio.sleep(2.2)
    async with trio.open_nursery() as nursery, connected(port) as client:
        nursery.start_soon(server.serve)
        assert await client.keep_alive(7) == 2
        with trio.fail_after(PATIENCE_SECONDS), pytest.raises(LeaseLostError):
            while True:
                # Once, but for a machine that stands still just now.
                while server._store.time_left(7, trio.current_time()) > 0:
                    await trio.sleep(0.1)
                await client.keep_alive(7)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_the_wall_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_clock = iter(itertools.cycle((0.0, 2e9, 1e9)))
    monkeypatch.setattr(time, "time", lambda: next(wall_clock))
    async with running_server() as (_, port), connected(port) as client:
        lease = await client.grant(2)
        for _ in range(24):
            await trio.sleep(0.1)
            assert await client.keep_alive(lease.lease_id) == 2


# --- bad company -------------------------------------------------------------------------------


async def test_people_can_look_at_it() -> None:
    async with running_server() as (_, port):
        assert b'"is":"tandem-embedded"' in await say(port, request("/version", b"", "GET"))
        assert b" 405 " in await say(port, request("/v3/kv/range", b"", "GET"))
        assert b" 404 " in await say(port, request("/v3/nope", b""))
        assert (await say(port, request("/version", b"", "HEAD"))).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", b" 400 "),
        (b"POST /v3/kv/range HTTP/1.1\r\n" + b"A: b\r\n" * 10_000, b" 431 "),
        (b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", b" 400 "),
        (request("/v3/kv/range", b"not json"), b" 400 "),
        (request("/v3/watch", b"{}"), b" 400 "),
        (b"", b""),
        (b"POST", b""),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\ngarbage\r\n\r\n", b" 400 "),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", b" 400 "),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx", b" 400 "),
        (b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\nmore", b" 405 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\nmore", b" 400 "),
    ],
)
async def test_what_is_no_request_is_answered_or_let_go(data: bytes, status: bytes) -> None:
    async with running_server() as (_, port), connected(port) as client:
        assert status in await say(port, data)
        assert (await client.read("/")).values == {}


@pytest.mark.parametrize("number", [2**64, 2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v3/lease/grant", '{"ID":"%d","TTL":"5"}'),
        ("/v3/lease/grant", '{"ID":%d,"TTL":5}'),
        ("/v3/lease/grant", '{"TTL":"%d"}'),
        ("/v3/lease/keepalive", '{"ID":"%d"}'),
        ("/v3/lease/revoke", '{"ID":"%d"}'),
        ("/v3/kv/put", '{"key":"YQ==","value":"YQ==","lease":"%d"}'),
        ("/v3/kv/compaction", '{"revision":"%d"}'),
        ("/v3/kv/txn", '{"compare":[{"key":"YQ==","target":"MOD","mod_revision":"%d"}]}'),
        ("/v3/watch", '{"create_request":{"key":"YQ==","start_revision":"%d"}}'),
    ],
)
async def test_a_number_that_is_none_of_this_api_is_refused(
    path: str, body: str, number: int
) -> None:
    async with running_server() as (_, port), connected(port) as client:
        assert b" 400 " in await say(port, request(path, (body % number).encode()))
        assert (await client.read("/")).revision == 1


async def test_a_bug_in_an_answer_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server() as (server, port), connected(port) as client:
        monkeypatch.setattr(server._gateway, "version", lambda: 1 / 0)
        assert await say(port, request("/version", b"", "GET")) == b""
        assert "a connection to the coordinator failed: a bug" in caplog.text
        assert (await client.read("/")).revision == 1


async def test_a_body_that_is_too_long_is_refused() -> None:
    async with running_server() as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            head = f"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: {2**40}\r\n\r\n"
            await stream.send_all(head.encode())
            await stream.send_all(b"x" * (BODY_BYTES_MAX + 1))
            with trio.fail_after(PATIENCE_SECONDS):
                assert b" 413 " in await stream.receive_some()


async def test_a_client_may_ask_before_it_sends_much() -> None:
    asked = json.dumps({"name": USER, "password": PASSWORD}).encode()
    async with running_server() as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            head = "POST /v3/auth/authenticate HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            await stream.send_all(f"{head}Content-Length: {len(asked)}\r\n\r\n".encode())
            with trio.fail_after(PATIENCE_SECONDS):
                assert b" 100 " in await stream.receive_some()
                await stream.send_all(asked)
                assert b" 200 " in await stream.receive_some()


async def test_more_connections_than_fit_are_closed_and_the_others_served() -> None:
    async with running_server() as (server, port), connected(port) as client:
        await client.read("/")
        with trio.fail_after(PATIENCE_SECONDS), ExitStack() as others:
            for _ in range(CONNECTIONS_MAX - 2):
                place = others.enter_context(server._connections.take())
                others.enter_context(place.answering())
            silent, later = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
            assert await silent.receive_some() == b""
            assert (await client.read("/")).values == {}
            for stream in (silent, later):
                await stream.aclose()


async def test_a_watcher_that_goes_away_is_let_go() -> None:
    async with running_server() as (server, port), connected(port) as client:
        await client.read("/")
        for _ in range(5):
            async with client.watch("/", 1):
                pass
        await put(client, "/a")
        with trio.fail_after(PATIENCE_SECONDS):
            while server._connections.count > 1:
                await trio.sleep(0.01)


@pytest.mark.slow
@settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=60), min_size=20, max_size=20))
def test_no_bytes_end_it(lines: list[bytes]) -> None:
    async def main() -> None:
        async with running_server() as (_, port), connected(port) as client:
            for line in lines:
                await say(port, line)
                await say(port, request("/v3/watch", line))
            assert (await client.read("/")).values == {}

    trio.run(main)


# --- strangers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("lease/grant", "lease/keepalive", "lease/revoke", "kv/range", "kv/put"),
        *("kv/deleterange", "kv/txn", "kv/compaction", "maintenance/status", "watch", "nope"),
    ],
)
async def test_who_has_no_token_is_answered_nothing(path: str) -> None:
    async with running_server() as (server, port), connected(port) as client:
        await put(client, "/a")
        before = server._store.revision
        body = b'{"key":"L2E=","value":"eA==","create_request":{"key":"L2E="},"TTL":"60"}'
        for token, said in ((b"", b"user name is empty"), (b"guess", b"invalid auth token")):
            answer = await say(port, request(f"/v3/{path}", body, token=token))
            assert said in answer
            assert b"header" not in answer
        assert server._store.revision == before
        assert (await client.read("/")).values["/a"].value == b"v"


async def test_a_client_with_another_secret_is_told_what_to_do() -> None:
    async with running_server() as (_, port):
        other = EtcdClient([f"127.0.0.1:{port}"], user=USER, password="another")
        async with aclosing(other) as client:
            with pytest.raises(CoordinatorRefusedError) as caught:
                await client.read("/")
            assert caught.value.cause is RefusalCause.OTHER_SECRET


async def test_a_client_gets_another_token_when_its_own_was_forgotten() -> None:
    file = MemoryFile()
    async with running_server(file) as (_, port), connected(port) as client:
        await put(client, "/a")
        client._token = "of an earlier life"
        assert list((await client.read("/")).values) == ["/a"]
        client._token = "of an earlier life"
        async with client.watch("/", 1) as batches:
            assert await anext(batches)
