from base64 import b64decode
from urllib.parse import quote

import pytest
from trio.testing import MockClock

from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of

HOSTILE = ("</script><script>alert(1)</script>", "a\0b", "😀", "100%", "x y&z=1", "..", "\u202e")


def filled() -> FakeCluster:
    cluster = FakeCluster()
    for number in range(70):
        key = f"many k{number}"
        cluster.store("Orders", b"body %d" % number, number % 2, KEYS=key, UNIQ_KEY=f"U{number}")
    return cluster


async def test_a_time_is_read_page_by_page(autojump_clock: MockClock) -> None:
    cluster = filled()
    async with browser_of(cluster) as browser:
        path = "/api/v1/messages?topic=Orders&begin_ms=0"
        found: list[str] = []
        pages = 0
        cursor: str | None = ""
        while cursor is not None:
            page = (await browser.get(path + (f"&cursor={cursor}" if cursor else ""))).json
            assert len(page["messages"]) <= 32
            found += [each["id"] for each in page["messages"]]
            cursor, pages = page["cursor"], pages + 1
        assert (found, pages) == ([f"U{number}" for number in range(70)], 3)
        first = cluster.queues["Orders"][0][0].store_timestamp_ms
        part = await browser.get(f"{path}&end_ms={first + 2}")
        assert [each["id"] for each in part.json["messages"]] == ["U0", "U1"]


async def test_messages_of_one_time_are_each_on_one_page(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    for number in range(50):
        cluster.now_ms = 1_000
        cluster.store("Orders", b"", 0, UNIQ_KEY=f"U{number}")
    async with browser_of(cluster) as browser:
        path = "/api/v1/messages?topic=Orders&begin_ms=0&limit=20"
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await browser.get(path + (f"&cursor={cursor}" if cursor else ""))).json
            found += [each["id"] for each in page["messages"]]
            cursor = page["cursor"]
        assert found == [f"U{number}" for number in range(50)]


async def test_a_queue_is_read_from_an_offset_on(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        path = "/api/v1/messages?topic=Orders&queue=1&offset=30&limit=3"
        first = (await browser.get(path)).json
        assert [each["queue_offset"] for each in first["messages"]] == [30, 31, 32]
        second = (await browser.get(f"{path}&cursor={first['cursor']}")).json
        assert [each["queue_offset"] for each in second["messages"]] == [33, 34]
        assert second["cursor"] is None
        assert (await browser.get("/api/v1/messages?topic=Orders&queue=9&offset=0")).status == 404


async def test_messages_are_found_by_key_and_id(autojump_clock: MockClock) -> None:
    async with browser_of(filled()) as browser:
        by_key = (await browser.get("/api/v1/messages?topic=Orders&key=k7")).json["messages"]
        assert [each["id"] for each in by_key] == ["U7"]
        many = (await browser.get("/api/v1/messages?topic=Orders&key=many&limit=5")).json
        assert [each["id"] for each in many["messages"]] == [f"U{each}" for each in range(65, 70)]
        by_id = (await browser.get("/api/v1/messages?topic=Orders&id=U7")).json["messages"]
        assert by_id[0]["offset_id"] == by_key[0]["offset_id"]
        one = (await browser.get(f"/api/v1/messages/{by_key[0]['offset_id']}")).json["message"]
        assert one["body"]["text"] == "body 7"
        missing = await browser.get("/api/v1/messages/U7")
        assert (missing.status, missing.code) == (404, "no_message")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "topic=Orders",
        "topic=&begin_ms=0",
        "topic=Orders&begin_ms=x",
        "topic=Orders&begin_ms=-1",
        "topic=Orders&begin_ms=99999999999999999999",
        "topic=Orders&begin_ms=0&limit=33",
        "topic=Orders&begin_ms=0&limit=0",
        "topic=Orders&begin_ms=0&cursor=x",
        "topic=Orders&begin_ms=0&cursor=1.99999",
        "topic=Orders&begin_ms=0&cursor=1",
        "topic=Orders&key=",
        "topic=Orders&key=a&id=b",
        "topic=Orders&queue=0&key=a",
        "topic=Orders&queue=-1",
        "topic=Orders&begin_ms=0&queue=0",
        "topic=Orders&begin_ms=0&other=1",
    ],
)
async def test_how_to_look_has_to_be_said_rightly(autojump_clock: MockClock, query: str) -> None:
    async with browser_of(filled()) as browser:
        answer = await browser.get(f"/api/v1/messages?{query}")
        assert (answer.status, answer.code) == (400, "bad_parameter")


async def test_a_body_is_data(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    bodies = [b"", b"\xff\xfe\x00", "</script> é😀\u2028".encode(), b'{"a": 1}']
    for body in bodies:
        cluster.store("Orders", body)
    async with browser_of(cluster) as browser:
        answer = await browser.get("/api/v1/messages?topic=Orders&begin_ms=0")
        found = [each["body"] for each in answer.json["messages"]]
        assert [b64decode(each["base64"]) for each in found] == bodies
        assert [each["text"] for each in found] == ["", None, bodies[2].decode(), '{"a": 1}']
        assert not any(each["truncated"] for each in found)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_long_body_is_cut_and_says_so(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    long = "é".encode() * (2 * 1024 * 1024)
    message = cluster.store("Orders", b"x" + long[:-1])
    async with browser_of(cluster) as browser:
        answer = await browser.get("/api/v1/messages?topic=Orders&begin_ms=0")
        listed = answer.json["messages"][0]["body"]
        assert (listed["size"], listed["truncated"]) == (4 * 1024 * 1024, True)
        assert len(b64decode(listed["base64"])) == 4 * 1024
        assert listed["text"] == "x" + "é" * 2047  # up to the last whole character
        one = await browser.get(f"/api/v1/messages/{message.offset_msg_id}")
        body = one.json["message"]["body"]
        assert len(b64decode(body["base64"])) == 256 * 1024
        assert (body["size"], body["truncated"]) == (4 * 1024 * 1024, True)
        assert len(one.body) < 1024 * 1024


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_names_go_there_and_back_unchanged(
    autojump_clock: MockClock, text: str
) -> None:
    cluster = FakeCluster()
    cluster.store(text, text.encode(), 0, UNIQ_KEY="U", **{text: text})
    name = quote(text, safe="")
    async with browser_of(cluster) as browser:
        answer = await browser.get(f"/api/v1/messages?topic={name}&begin_ms=0")
        (found,) = answer.json["messages"]
        assert (found["topic"], found["body"]["text"]) == (text, text)
        assert found["properties"][text] == text
        assert (await browser.get(f"/api/v1/topics/{name}")).json["topic"] == text


async def test_a_name_that_is_too_long_is_refused(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        assert (await browser.get("/api/v1/topics/" + "x" * 33_001)).code == "bad_parameter"
        assert (await browser.get("/api/v1/topics/" + "x" * 30_000)).code == "no_topic"


async def test_what_became_of_a_message_is_told(autojump_clock: MockClock) -> None:
    cluster = filled()
    cluster.committed = 5
    async with browser_of(cluster) as browser:
        trace = (await browser.get("/api/v1/messages/U7/trace?topic=Orders")).json
        assert trace["message"]["id"] == "U7"
        assert [(each["group"], each["state"]) for each in trace["groups"]] == [
            ("billing", "consumed")
        ]
        why = (await browser.get("/api/v1/messages/U7/why?topic=Orders")).json
        assert (why["is_found"], why["lives"][0]["id"]) == (True, "U7")
        nothing = await browser.get("/api/v1/messages/other/why?topic=Orders")
        assert (nothing.status, nothing.json["is_found"]) == (200, False)
