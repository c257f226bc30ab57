"""The whole of HTTP in one process: hostile requests, sessions, streams."""

from contextlib import AsyncExitStack

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tandem.console.server import CONNECTIONS_MAX, LIMITS, encoded
from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import (
    HOST,
    PAGE,
    EventReader,
    browser_of,
    consoles,
    parsed,
)

CHANGES = ("/api/v1/session", "/api/v1/dead-letters/resend", "/api/v1/groups/billing/reset")
READS = (
    "/api/v1/cluster",
    "/api/v1/events",
    "/api/v1/topics",
    "/api/v1/topics/Orders",
    "/api/v1/groups",
    "/api/v1/groups/billing",
    "/api/v1/messages?topic=Orders&begin_ms=0",
    "/api/v1/messages/x",
    "/api/v1/messages/x/trace",
    "/api/v1/messages/x/why",
    "/api/v1/dead-letters?group=billing",
    "/api/v1/settings",
    "/api/v1/drills",
    "/api/v1/drills/x",
)


async def test_the_page_is_sent_with_what_it_may_do(autojump_clock: MockClock) -> None:
    async with consoles(FakeCluster()) as (running,):
        answer = await running.browser().get("/")
        assert (answer.status, answer.body) == (200, PAGE.body)
        assert answer.headers["content-security-policy"] == PAGE.policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        head = await running.browser().ask("HEAD", "/", headers={"X-Tandem": "-"})
        assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("path", READS)
async def test_who_is_not_logged_in_learns_nothing(autojump_clock: MockClock, path: str) -> None:
    async with consoles(FakeCluster()) as (running,):
        browser = running.browser()
        answer = await browser.get(path)
        assert (answer.status, answer.code) == (401, "no_session")
        browser.cookie = "tandem-9880=" + "A" * 43
        assert (await browser.get(path)).status == 401
        who = (await browser.get("/api/v1/session")).json
        assert (who["logged_in"], who["cluster"], who["version"]) == (False, "", "")


async def test_who_is_not_logged_in_does_not_hear_what_is_wrong_with_a_request(
    autojump_clock: MockClock,
) -> None:
    async with consoles(FakeCluster()) as (running,):
        browser = running.browser()
        for path in ("/api/v1/messages?x=1", "/api/v1/topics?limit=x", "/api/v1/dead-letters"):
            assert (await browser.get(path)).code == "no_session"
        for path in CHANGES[1:]:
            assert (await browser.post(path, {"x": 1})).code == "no_session"


@pytest.mark.parametrize(
    "host", ["evil.example:9880", "127.0.0.1", "127.0.0.1:9881", "localhost.evil:9880", "", "é"]
)
async def test_another_host_is_refused_also_for_the_page(
    autojump_clock: MockClock, host: str
) -> None:
    async with browser_of(FakeCluster()) as browser:
        for path in ("/", "/api/v1/session", "/api/v1/cluster", "/nothing"):
            answer = await browser.get(path, Host=host)
            assert answer.status in (400, 421)
        assert (await browser.get("/", Host="LOCALHOST:9880")).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", f"https://{HOST}", "null", ""])
async def test_another_origin_changes_and_reads_nothing(
    autojump_clock: MockClock, origin: str
) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        for path in CHANGES:
            answer = await browser.post(path, {}, Origin=origin)
            assert (answer.status, answer.code) == (403, "wrong_origin")
            assert (await browser.post(path, {}, Origin="-")).status == 403
        assert (await browser.get("/api/v1/cluster", Origin=origin)).status == 403
        ended = await browser.ask("DELETE", "/api/v1/session", headers={"Origin": origin})
        assert ended.status == 403
        assert (await browser.get("/api/v1/cluster")).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_what_another_site_asks_for_is_refused(autojump_clock: MockClock, site: str) -> None:
    async with browser_of(FakeCluster()) as browser:
        answer = await browser.get("/api/v1/cluster", Sec_Fetch_Site=site)
        assert (answer.status, answer.code) == (403, "wrong_origin")
        for own in ("same-origin", "none"):
            assert (await browser.get("/api/v1/cluster", Sec_Fetch_Site=own)).status == 200


@pytest.mark.parametrize("path", CHANGES)
async def test_a_change_takes_what_no_form_can_send(autojump_clock: MockClock, path: str) -> None:
    async with browser_of(FakeCluster()) as browser:
        for value in ("-", "0", "true"):
            assert (await browser.post(path, {}, X_Tandem=value)).code == "no_x_tandem"
        for kind in ("-", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await browser.post(path, {}, Content_Type=kind)
            assert (answer.status, answer.code) == (415, "wrong_type")
        right = await browser.post(path, {}, Content_Type="application/json; charset=utf-8")
        assert right.code == "bad_parameter"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"])
async def test_other_methods_are_refused(autojump_clock: MockClock, method: str) -> None:
    async with browser_of(FakeCluster()) as browser:
        for path in ("/", "/api/v1/session", "/api/v1/cluster"):
            answer = await browser.ask(method, path)
            assert answer.status == 405
            assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_route_takes_its_own_methods_alone(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        for path in READS:
            assert (await browser.post(path, {})).status == 405
        for path in CHANGES[1:]:
            assert (await browser.get(path)).status == 405
        assert (await browser.post("/", {})).status == 405
        assert (await browser.delete("/api/v1/cluster")).code == "wrong_method"


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../etc/passwd",
        "/api/v1/../../etc/passwd",
        "/api/v1/%2e%2e/%2e%2e/page.html",
        "/%2e%2e%2fpage.html",
        "/api/v1/drills/..",
        "/api/v1/drills/%2e%2e%2f%2e%2e%2fetc",
        "/page.html",
        "//",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v1/topics/",
        "/api/v1/cluster/",
        "/favicon.ico",
        "http://127.0.0.1:9880/",
        "*",
    ],
)
async def test_paths_lead_nowhere_else(autojump_clock: MockClock, path: str) -> None:
    async with browser_of(FakeCluster()) as browser:
        answer = await browser.get(path)
        assert answer.status == 404
        assert answer.code in ("no_route", "no_run")


@pytest.mark.parametrize(
    "path", ["/api/v1/topics/%", "/api/v1/topics/%zz", "/api/v1/topics/%ff", "/?a=%f", "/?a=1&a=2"]
)
async def test_what_cannot_be_decoded_is_a_bad_parameter(
    autojump_clock: MockClock, path: str
) -> None:
    async with browser_of(FakeCluster()) as browser:
        assert (await browser.get(path)).code == "bad_parameter"


async def test_what_is_too_long_or_no_http_is_refused_as_json(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        long = await browser.send(b"GET /" + b"x" * LIMITS.head_bytes + b" HTTP/1.1\r\n\r\n")
        assert parsed(long).status in (400, 431)
        body = b"[" + b"1," * LIMITS.body_bytes
        answer = await browser.ask("POST", "/api/v1/session", body)
        assert (answer.status, answer.code) == (413, "too_large")
        garbage = parsed(await browser.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"))
        assert (garbage.status, garbage.code) == (400, "bad_request")
        assert garbage.headers["x-content-type-options"] == "nosniff"


async def test_a_request_that_takes_too_long_is_cut_off(autojump_clock: MockClock) -> None:
    async with consoles(FakeCluster()) as (running,):
        stream = running.connect("127.0.0.1")
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        start = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - start <= LIMITS.request_seconds + 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"1", b"\xff", b'{"token": "\\ud800"}', b"[" * 60_000]
)
async def test_a_body_that_is_no_object_is_refused(autojump_clock: MockClock, body: bytes) -> None:
    async with consoles(FakeCluster()) as (running,):
        answer = await running.browser().ask("POST", "/api/v1/session", body)
        assert answer.status in (400, 401)
        assert answer.code in ("bad_json", "wrong_token")


async def test_no_answer_has_a_secret(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.secrets = {"shop": "very-secret-1"}
    async with consoles(cluster) as (running,):
        browser = running.browser()
        said = [await browser.log_in("shop", each) for each in ("very-secret-1", "wrong-secret")]
        paths = (*READS[2:], "/api/v1/session", "/api/v1/cluster")
        said += [await browser.get(path) for path in paths]
        for answer in said:
            assert b"secret-1" not in answer.body
            assert b"wrong-secret" not in answer.body
        assert "very-secret-1" not in repr(running.console.accounts.around.target)


async def test_the_head_of_a_stream_is_not_served(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with browser_of(FakeCluster()) as browser:
        answer = await browser.ask("HEAD", "/api/v1/events")
        assert answer.status == 405
    assert not caplog.records


async def test_events_come_each_second_to_all_who_listen(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        async with browser.events() as one, browser.events() as two:
            assert await one.next() == {"retry": "2000"}
            assert one.headers["content-type"] == "text/event-stream"
            first, same = await one.cluster(), await two.cluster()
            assert first == same
            start = trio.current_time()
            second = await one.cluster()
            assert second["id"] != first["id"]
            assert trio.current_time() - start == pytest.approx(1, abs=0.1)
        asked = sum(len(broker.requests) for broker in cluster.brokers.values())
        await trio.sleep(30)
        now = sum(len(broker.requests) for broker in cluster.brokers.values())
        assert now - asked < 20, "nobody listens, so nobody is asked"


async def test_a_listener_that_comes_back_gets_what_is_newer(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        async with browser.events() as reader:
            first = await reader.cluster()
        async with browser.events(last=first["id"]) as reader:
            assert (await reader.cluster())["id"] != first["id"]
        for strange in ("x", "-", "9-9", "99999999999999999999", "\xff-1", first["id"] + "9"):
            async with browser.events(last=strange) as reader:
                assert (await reader.cluster())["id"]


async def test_a_killed_master_is_seen_within_a_second_or_so(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser, browser.events() as reader:
        seen = await reader.cluster()
        assert (seen["groups"][0]["master"], seen["verdict"]) == ("a", "impaired")
        del cluster.brokers["10.0.0.1:10911"]
        cluster.nobody_is_master()
        await browser.running.network.cut()
        start = trio.current_time()
        seen = await reader.cluster()
        while seen["groups"][0]["master"] == "a":
            seen = await reader.cluster()
        assert trio.current_time() - start <= 2
        assert seen["verdict"] == "takes no messages"
        assert seen["groups"][0]["nodes"][0]["role"] == "down"
        cluster.elect("b", 8)
        while not seen["groups"][0]["master"]:
            seen = await reader.cluster()
        switches = [(each["master"], each["epoch"]) for each in seen["switches"]]
        assert switches == [("b", 8), ("a", 7)]


async def test_listeners_are_bounded(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                reader = await stack.enter_async_context(browser.events())
                await reader.cluster()
            answer = await browser.get("/api/v1/events")
            assert (answer.status, answer.code) == (429, "too_many_listeners")
        await trio.sleep(3)
        async with browser.events() as again:
            assert await again.cluster()


async def test_a_stream_ends_with_its_session(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser, browser.events() as reader:
        await reader.cluster()
        await browser.delete("/api/v1/session")
        fields = await reader.next()
        while fields.get("event") == "cluster":
            fields = await reader.next()
        assert fields == {"event": "over", "data": '{"reason":"no_session"}'}
        assert await reader.next() == {}


@pytest.mark.slow
async def test_listening_is_no_use_of_a_session(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser, browser.events() as reader:
        start = trio.current_time()
        while (fields := await reader.next()).get("event") != "over":
            assert fields
        assert 1790 < trio.current_time() - start < 1810
        assert (await browser.get("/api/v1/cluster")).status == 401


async def test_connections_are_bounded(autojump_clock: MockClock) -> None:
    async with consoles(FakeCluster()) as (running,):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.server.serve, listeners)
            address = listeners[0].socket.getsockname()
            strangers = [await trio.open_tcp_stream(*address) for _ in range(CONNECTIONS_MAX + 1)]
            assert await strangers[0].receive_some() == b""
            await strangers[-1].send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await strangers[-1].receive_some()).startswith(b"HTTP/1.1 ")
            for stream in strangers:
                await stream.aclose()
            nursery.cancel_scope.cancel()


def test_half_of_a_surrogate_pair_is_json_too() -> None:
    data = encoded({"a": "\ud800", 1: "é"})
    assert data.isascii()
    assert b"\\ud800" in data
    assert msgspec.json.decode(encoded({"a": "é"})) == {"a": "é"}


async def test_a_listener_that_does_not_read_is_cut_off(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        ours, theirs = trio.testing.lockstep_stream_pair()  # takes no more than is read
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browser.running.server.serve_stream, theirs, "127.0.0.1")
            head = f"Host: {HOST}\r\nCookie: {browser.cookie}\r\n\r\n"
            await ours.send_all(f"GET /api/v1/events HTTP/1.1\r\n{head}".encode())
            await ours.receive_some(10)
            assert browser.running.console.listeners_count == 1
            start = trio.current_time()
        assert trio.current_time() - start <= LIMITS.request_seconds + 2
        assert browser.running.console.listeners_count == 0


async def test_who_goes_away_is_no_listener_any_more(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        for _ in range(10):
            async with browser.events() as reader:
                await reader.cluster()
            await trio.sleep(1.5)
        assert browser.running.console.listeners_count == 0


async def test_who_listens_hears_that_the_console_ends(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browser.running.server.serve_stream, theirs, "127.0.0.1")
            head = f"Host: {HOST}\r\nCookie: {browser.cookie}\r\n\r\n"
            await ours.send_all(f"GET /api/v1/events HTTP/1.1\r\n{head}".encode())
            reader = EventReader(ours)
            await reader.cluster()
            nursery.cancel_scope.cancel()
        fields = await reader.next()
        assert fields == {"event": "over", "data": '{"reason":"ended"}'}
