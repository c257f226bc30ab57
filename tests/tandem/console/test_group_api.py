import pytest
import trio
from trio.testing import MockClock

from tests.tandem.console.fake_cluster import GROUP, FakeCluster
from tests.tandem.console.running_console import Answer, Browser, browser_of, consoles

RESET = f"/api/v1/groups/{GROUP}/reset"


def filled() -> FakeCluster:
    cluster = FakeCluster()
    for number in range(20):
        cluster.store("Orders", b"", number % 2)
    cluster.committed = 4
    return cluster


async def plan(browser: Browser, **fields: object) -> Answer:
    return await browser.post(RESET, {"topic": "Orders", "to": "latest", **fields})


async def test_groups_are_listed_and_described(autojump_clock: MockClock) -> None:
    cluster = filled()
    cluster.members = ["c-1"]
    cluster.dead_letter(b"", "U1")
    async with browser_of(cluster) as browser:
        listed = (await browser.get("/api/v1/groups")).json
        assert listed["total"] == 1
        assert listed["groups"][0] == {
            "group": GROUP, "members_count": 1, "topics": ["Orders"], "lag": 12
        }  # fmt: skip
        assert (await browser.get("/api/v1/groups?filter=BILL")).json["total"] == 1
        assert (await browser.get("/api/v1/groups?filter=x")).json["groups"] == []
        assert (await browser.get("/api/v1/groups?offset=1")).json["groups"] == []
        found = (await browser.get(f"/api/v1/groups/{GROUP}")).json
        assert (found["lag"], found["dead_letters"]) == (12, 1)
        assert [each["client_id"] for each in found["members"]] == ["c-1"]
        assert [each["lag"] for each in found["queues"]] == [6, 6]


async def test_the_list_is_not_asked_for_by_everybody(autojump_clock: MockClock) -> None:
    cluster = filled()
    async with browser_of(cluster) as browser:
        for _ in range(5):
            await browser.get("/api/v1/groups")
        codes = [code for broker in cluster.brokers.values() for code in broker.codes()]
        assert codes.count(317) == 1
        await trio.sleep(2)
        await browser.get("/api/v1/groups")
        codes = [code for broker in cluster.brokers.values() for code in broker.codes()]
        assert codes.count(317) == 2


async def test_a_reset_has_two_steps(autojump_clock: MockClock) -> None:
    cluster = filled()
    async with browser_of(cluster) as browser:
        first = (await plan(browser, to="offset", number=1)).json["plan"]
        assert (first["again"], first["skipped"], first["members_count"]) == (6, 0, 0)
        assert [each["new_offset"] for each in first["changes"]] == [1, 1]
        assert cluster.resets == []
        wrong = await browser.post(RESET, {"number": first["number"], "name": "Billing"})
        assert (wrong.status, wrong.code) == (409, "name_differs")
        assert cluster.resets == []
        said: list[str] = []
        browser.running.console.note = said.append
        done = await browser.post(RESET, {"number": first["number"], "name": GROUP})
        order = f"group {GROUP} is reset in topic Orders, 2 queues"
        assert said == [f"somebody at 127.0.0.1: {order}: done"]
        assert (done.json["done"]["way"], done.json["done"]["topic"]) == ("broker", "Orders")
        assert [each["offset"] for each in cluster.resets] == ["1", "1"]
        twice = await browser.post(RESET, {"number": first["number"], "name": GROUP})
        assert (twice.status, twice.code) == (409, "plan_over")
        assert len(cluster.resets) == 2


async def test_a_group_with_members_is_reset_and_they_are_named(autojump_clock: MockClock) -> None:
    cluster = filled()
    cluster.members = ["c-1", "c-2"]
    async with browser_of(cluster) as browser:
        found = (await plan(browser, to="latest")).json["plan"]
        assert (found["members_count"], found["skipped"]) == (2, 12)
        done = await browser.post(RESET, {"number": found["number"], "name": GROUP})
        assert done.json["done"]["members_count"] == 2


async def test_a_plan_is_of_its_session_its_group_and_its_time(autojump_clock: MockClock) -> None:
    cluster = filled()
    async with consoles(cluster) as (running,):
        one, two = running.browser(), running.browser()
        await one.log_in()
        await two.log_in()
        number = (await plan(one)).json["plan"]["number"]
        other = await two.post(RESET, {"number": number, "name": GROUP})
        assert other.code == "plan_over"
        elsewhere = {"number": number, "name": "other"}
        assert (await one.post("/api/v1/groups/other/reset", elsewhere)).code == "plan_over"
        await trio.sleep(601)
        assert (await one.post(RESET, {"number": number, "name": GROUP})).code == "plan_over"
        assert cluster.resets == []


async def test_plans_that_are_kept_are_bounded(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        numbers = [(await plan(browser)).json["plan"]["number"] for _ in range(20)]
        assert len(set(numbers)) == 20
        codes = [
            (await browser.post(RESET, {"number": each, "name": "x"})).code for each in numbers
        ]
        assert codes.count("name_differs") == 16


@pytest.mark.parametrize(
    "fields",
    [{"to": "x"}, {"to": "time"}, {"to": "offset", "number": -1}, {"to": "latest", "number": 1},
     {"topic": ""}, {"to": "offset", "number": "1"}, {"other": 1}, {"to": "offset", "number": True},
     {"to": "offset", "number": 1 << 64}],
)  # fmt: skip
async def test_where_to_go_on_has_to_be_said_rightly(
    autojump_clock: MockClock, fields: dict[str, object]
) -> None:
    async with browser_of(filled()) as browser:
        answer = await plan(browser, **fields)
        assert answer.code in ("bad_parameter", "bad_json")


async def test_a_topic_that_is_not_there_has_no_plan(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        assert (await plan(browser, topic="</script>")).code == "no_topic"
        answer = await browser.post("/api/v1/groups/%00/reset", {"topic": "Orders", "to": "x"})
        assert answer.code == "bad_parameter"
