import trio
from trio.testing import MockClock

from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of, consoles


def with_users() -> FakeCluster:
    cluster = FakeCluster()
    cluster.secrets = {"shop": "secret-of-shop", "boss": "secret-of-boss"}
    cluster.looks_around = {"boss"}
    return cluster


async def test_a_token_is_good_for_one_login(autojump_clock: MockClock) -> None:
    async with consoles(FakeCluster()) as (running,):
        assert running.console.token
        first, token = running.browser(), running.console.token.text
        answer = await first.log_in()
        assert answer.json["logged_in"]
        assert (answer.json["login"], answer.json["user"]) == ("token", "")
        assert answer.json["cluster"] == "C"
        assert running.console.token.text != token
        second = running.browser()
        again = await second.post("/api/v1/session", {"token": token})
        assert (again.status, again.code) == (401, "wrong_token")
        assert (await second.get("/api/v1/cluster")).status == 401
        assert (await second.log_in()).status == 200
        assert (await first.get("/api/v1/cluster")).status == 200


async def test_the_cookie_is_for_this_console_alone(autojump_clock: MockClock) -> None:
    async with consoles(FakeCluster()) as (running,):
        cookie = (await running.browser().log_in()).headers["set-cookie"]
        name, *attributes = cookie.split("; ")
        assert name.startswith("tandem-9880=")
        assert len(name.partition("=")[2]) == 43  # 256 bits
        assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    async with consoles(FakeCluster(), secure=True) as (running,):
        assert running.console.token
        body = {"token": running.console.token.text}
        answer = await running.browser().post(
            "/api/v1/session", body, Origin="https://127.0.0.1:9880"
        )
        assert "Secure" in answer.headers["set-cookie"].split("; ")


async def test_a_user_logs_in_with_own_keys(autojump_clock: MockClock) -> None:
    async with consoles(with_users()) as (running,):
        browser = running.browser()
        assert (await browser.get("/api/v1/session")).json["login"] == "keys"
        for user, secret in (("shop", "wrong"), ("nobody", "secret-of-shop"), ("shop", "\0é😀")):
            answer = await browser.log_in(user, secret)
            assert (answer.status, answer.code) == (401, "wrong_keys")
            assert not browser.cookie
        assert (await browser.log_in("shop", "secret-of-shop")).json["user"] == "shop"
        assert (await browser.get("/api/v1/topics/Orders")).status == 200
        # Only what the nodes let this user do.
        for path in ("/api/v1/cluster", "/api/v1/topics", "/api/v1/settings", "/api/v1/drills"):
            answer = await browser.get(path)
            assert (answer.status, answer.code) == (403, "forbidden")
        assert (await browser.log_in("boss", "secret-of-boss")).status == 200
        assert (await browser.get("/api/v1/cluster")).json["groups"][0]["master"] == "a"


async def test_a_token_is_no_way_into_a_cluster_with_users(autojump_clock: MockClock) -> None:
    async with consoles(with_users()) as (running,):
        assert running.console.token is None
        answer = await running.browser().post("/api/v1/session", {"token": "x"})
        assert answer.code == "bad_parameter"
    async with consoles(FakeCluster()) as (running,):
        answer = await running.browser().post("/api/v1/session", {"user": "a", "secret": "b"})
        assert answer.code == "bad_parameter"


async def test_a_second_login_ends_the_first_session(autojump_clock: MockClock) -> None:
    async with consoles(with_users()) as (running,):
        browser = running.browser()
        await browser.log_in("boss", "secret-of-boss")
        old = browser.cookie
        await browser.log_in("shop", "secret-of-shop")
        assert browser.cookie != old
        browser.cookie = old
        assert (await browser.get("/api/v1/topics/Orders")).status == 401
        assert list(running.console.accounts._accounts) == [("shop", "secret-of-shop")]


async def test_sessions_of_one_user_share_a_client_until_the_last_ends(
    autojump_clock: MockClock,
) -> None:
    async with consoles(with_users()) as (running,):
        one, two = running.browser(), running.browser()
        await one.log_in("boss", "secret-of-boss")
        await two.log_in("boss", "secret-of-boss")
        assert len(running.console.accounts._accounts) == 1
        answer = await one.delete("/api/v1/session")
        assert not answer.json["logged_in"]
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert (await two.get("/api/v1/cluster")).status == 200
        await two.delete("/api/v1/session")
        assert not running.console.accounts._accounts
        assert (await two.get("/api/v1/cluster")).status == 401
        assert (await two.delete("/api/v1/session")).status == 200


async def test_a_session_ends_when_it_is_idle_and_not_before(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        for _ in range(3):
            await trio.sleep(1790)
            assert (await browser.get("/api/v1/session")).json["logged_in"]
        await trio.sleep(1810)
        assert (await browser.get("/api/v1/cluster")).status == 401
        assert not browser.running.console.accounts._accounts


async def test_logins_that_fail_are_bounded_by_address(autojump_clock: MockClock) -> None:
    async with consoles(with_users()) as (running,):
        bad, good = running.browser("10.0.0.66"), running.browser("10.0.0.7")
        for _ in range(10):
            assert (await bad.log_in("shop", "guess")).status == 401
        answer = await bad.log_in("shop", "secret-of-shop")
        assert (answer.status, answer.code) == (429, "too_many_logins")
        assert 0 < answer.json["error"]["details"]["retry_after_ms"] <= 60_000
        assert (await good.log_in("shop", "secret-of-shop")).status == 200
        await trio.sleep(61)
        assert (await bad.log_in("shop", "secret-of-shop")).status == 200


async def test_a_login_where_no_node_answers_says_so(autojump_clock: MockClock) -> None:
    cluster = with_users()
    cluster.brokers.clear()
    async with consoles(cluster) as (running,):
        answer = await running.browser().log_in("shop", "secret-of-shop")
        assert (answer.status, answer.code) == (503, "no_answer")
        assert not running.console.accounts._accounts


async def test_a_user_who_is_gone_is_refused_from_then_on(autojump_clock: MockClock) -> None:
    cluster = with_users()
    async with browser_of(cluster, "boss") as browser:
        assert (await browser.get("/api/v1/topics")).status == 200
        del cluster.secrets["boss"]
        assert (await browser.get("/api/v1/topics")).code == "forbidden"
        await trio.sleep(1)
        answer = await browser.get("/api/v1/cluster")
        assert (answer.status, answer.code) == (403, "forbidden")
