import pytest
from trio.testing import MockClock

from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of


def filled() -> FakeCluster:
    cluster = FakeCluster()
    cluster.store("Orders", b"")
    for number in range(120):
        cluster.queues[f"t-{number:03}"] = [[]]
    cluster.dead_letter(b"", "U1")
    cluster.queues["%RETRY%billing"] = [[]]
    return cluster


async def test_topics_are_listed_in_parts(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        everything = (await browser.get("/api/v1/topics")).json
        assert (everything["total"], everything["limit"]) == (122, 200)
        kinds = {each["topic"]: each["kind"] for each in everything["topics"]}
        assert (kinds["Orders"], kinds["%DLQ%billing"]) == ("topic", "dead_letters")
        assert "%RETRY%billing" not in kinds
        system = (await browser.get("/api/v1/topics?system=true")).json
        kinds = {each["topic"]: each["kind"] for each in system["topics"]}
        assert (kinds["%RETRY%billing"], kinds["TBW102"]) == ("retries", "system")
        part = (await browser.get("/api/v1/topics?filter=T-&offset=118&limit=5")).json
        assert [each["topic"] for each in part["topics"]] == ["t-118", "t-119"]
        assert part["total"] == 120


async def test_counts_are_asked_for_on_demand_and_for_a_page_alone(
    autojump_clock: MockClock,
) -> None:
    async with browser_of(filled()) as browser:
        counted = (await browser.get("/api/v1/topics?counts=true&filter=orders")).json
        assert counted["topics"] == [
            {"topic": "Orders", "kind": "topic", "queues": 2, "messages": 1,
             "last_store_timestamp_ms": None}
        ]  # fmt: skip
        assert (await browser.get("/api/v1/topics?counts=true&limit=51")).code == "bad_parameter"
        assert len((await browser.get("/api/v1/topics?counts=true")).json["topics"]) == 50


async def test_a_topic_is_described(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        found = (await browser.get("/api/v1/topics/Orders")).json
        assert (found["message_count"], found["groups"]) == (1, ["billing"])
        assert [each["message_count"] for each in found["queues"]] == [1, 0]
        assert found["queues_left_out"] == 0
        assert found["brokers"][0]["addresses"]["0"] == "10.0.0.1:10911"
        assert (await browser.get("/api/v1/topics/%25DLQ%25billing")).json["kind"] == "dead_letters"


@pytest.mark.parametrize("query", ["offset=-1", "limit=0", "limit=1001", "system=x", "a=b"])
async def test_parameters_have_to_be_right(autojump_clock: MockClock, query: str) -> None:
    async with browser_of(filled()) as browser:
        assert (await browser.get(f"/api/v1/topics?{query}")).code == "bad_parameter"
