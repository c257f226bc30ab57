import trio
from trio.testing import MockClock

from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of, consoles


async def test_a_cluster_is_shown_with_its_last_switch(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        seen = (await browser.get("/api/v1/cluster")).json
        (group,) = seen["groups"]
        assert (seen["cluster"], group["group"], group["master"]) == ("C", "g", "a")
        assert [node["role"] for node in group["nodes"]] == ["MASTER", "FOLLOWER", "FOLLOWER"]
        assert seen["switches"][0]["reason"] == "test"
        # Without a file nobody asks the coordinator: that is no trouble of the cluster's.
        assert group["coordinator_trouble"] == ""
        assert (await browser.get("/api/v1/session")).json["cluster"] == "C"


async def test_a_node_that_is_down_is_seen_as_down(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        await browser.get("/api/v1/cluster")
        del cluster.brokers["10.0.0.3:10911"]
        await browser.running.network.cut()
        await trio.sleep(2)
        seen = (await browser.get("/api/v1/cluster")).json
        assert [node["role"] for node in seen["groups"][0]["nodes"]][2] == "down"
        assert seen["verdict"] == "impaired"
        assert any(problem.startswith("c: down") for problem in seen["problems"])


async def test_a_cluster_of_which_nothing_is_known_is_an_answer(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.brokers.clear()
    async with browser_of(cluster) as browser:
        answer = await browser.get("/api/v1/cluster")
        assert (answer.status, answer.code) == (503, "no_answer")
        async with browser.events() as reader:
            await reader.next()
            assert (await reader.next())["event"] == "trouble"


async def test_a_cluster_that_was_known_is_silent(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        cluster.brokers.clear()
        await browser.running.network.cut()
        seen = (await browser.get("/api/v1/cluster")).json
        assert seen["verdict"] == "silent"
        assert [node["role"] for node in seen["groups"][0]["nodes"]] == ["down"] * 3


async def test_who_may_not_see_the_cluster_does_not_see_its_coordinator(
    autojump_clock: MockClock,
) -> None:
    cluster = FakeCluster()
    cluster.secrets = {"shop": "secret-of-shop", "boss": "secret-of-boss"}
    cluster.looks_around = {"boss"}
    async with consoles(cluster) as (running,):
        boss, shop = running.browser(), running.browser()
        await boss.log_in("boss", "secret-of-boss")
        await shop.log_in("shop", "secret-of-shop")
        assert (await boss.get("/api/v1/cluster")).json["groups"][0]["epoch"] == 7
        answer = await shop.get("/api/v1/cluster")
        assert (answer.status, answer.code) == (403, "forbidden")
        async with shop.events() as reader:
            await reader.next()
            fields = await reader.next()
            assert fields["event"] == "trouble"
            assert "forbidden" in fields["data"]
