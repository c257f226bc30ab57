import pytest
import trio
from trio.testing import MockClock

from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import answer_to
from tests.tandem.console.fake_cluster import GROUP, FakeCluster
from tests.tandem.console.running_console import Answer, Browser, browser_of, consoles

RESEND = "/api/v1/dead-letters/resend"
KEY = "7F0000012D2019C18436716E4DDC0000"


def with_letters(count: int = 3) -> FakeCluster:
    cluster = FakeCluster()
    for number in range(count):
        key = f"{KEY[:-2]}{number:02X}"
        cluster.dead_letter(b"letter %d" % number, key, KEYS="k", own="</script>")
    return cluster


async def resend(browser: Browser, message_id: str, *, again: bool = False) -> Answer:
    return await browser.post(RESEND, {"group": GROUP, "id": message_id, "again": again})


def sent(cluster: FakeCluster) -> list[bytes]:
    return [each.body for queue in cluster.queues["Orders"] for each in queue]


async def test_dead_letters_are_listed_with_what_became_of_them(autojump_clock: MockClock) -> None:
    cluster = with_letters(40)
    async with browser_of(cluster) as browser:
        first = (await browser.get(f"/api/v1/dead-letters?group={GROUP}")).json
        assert (first["total"], len(first["letters"])) == (40, 32)
        letter = first["letters"][0]
        assert (letter["origin_id"], letter["origin_topic"]) == (KEY, "Orders")
        assert letter["resent"] is None
        path = f"/api/v1/dead-letters?group={GROUP}&cursor={first['cursor']}"
        rest = (await browser.get(path)).json
        assert (len(rest["letters"]), rest["cursor"]) == (8, None)
        await resend(browser, KEY)
        again = (await browser.get(f"/api/v1/dead-letters?group={GROUP}&limit=1")).json
        resent = again["letters"][0]["resent"]
        (message,) = [each for queue in cluster.queues["Orders"] for each in queue]
        assert resent == {
            "times": 1,
            "message_id": message.msg_id,
            "at_ms": message.store_timestamp_ms,
            "by": "",
        }


async def test_a_letter_is_sent_once_unless_it_is_said_again(autojump_clock: MockClock) -> None:
    cluster = with_letters()
    offset_id = cluster.queues[f"%DLQ%{GROUP}"][0][0].offset_msg_id
    async with browser_of(cluster) as browser:
        answer = await resend(browser, offset_id)
        assert answer.json["sent"]["copies"] == 1
        assert answer.json["sent"]["topic"] == "Orders"
        for name in (offset_id, KEY):
            twice = await resend(browser, name)
            assert (twice.status, twice.code) == (409, "sent_before")
            told = twice.json["error"]["details"]["resent"]
            assert (told["times"], told["message_id"]) == (1, answer.json["sent"]["message_id"])
        assert sent(cluster) == [b"letter 0"]
        third = await resend(browser, KEY, again=True)
        assert third.status == 200
        assert third.json["sent"]["message_id"] != answer.json["sent"]["message_id"]
        told = (await resend(browser, KEY)).json["error"]["details"]["resent"]
        assert (told["times"], told["message_id"]) == (2, third.json["sent"]["message_id"])
    # A console that was started anew, and any other, know it from the log.
    async with browser_of(cluster) as browser:
        assert (await resend(browser, KEY)).code == "sent_before"
    assert sent(cluster) == [b"letter 0"] * 2


async def test_who_has_sent_it_again_is_in_the_message(autojump_clock: MockClock) -> None:
    cluster = with_letters()
    cluster.secrets = {"shop": "secret-of-shop", "boss": "secret-of-boss"}
    async with browser_of(cluster, "shop") as browser:
        assert (await resend(browser, KEY)).status == 200
    async with browser_of(cluster, "boss") as browser:
        told = (await resend(browser, KEY)).json["error"]["details"]["resent"]
        assert told["by"] == "shop"


async def test_two_consoles_that_send_at_once_are_told_of_each_other(
    autojump_clock: MockClock,
) -> None:
    cluster = with_letters()
    answers: list[Answer] = []
    async with consoles(cluster, 2) as (one, two):
        browsers = [one.browser(), two.browser()]
        for browser in browsers:
            await browser.log_in()

        async def send(browser: Browser) -> None:
            answers.append(await resend(browser, KEY))

        async with trio.open_nursery() as nursery:
            for browser in browsers:
                nursery.start_soon(send, browser)
    copies = len(sent(cluster))
    told = [each.json["sent"]["copies"] if each.status == 200 else each.code for each in answers]
    # Either one was first and the other is refused, or both have sent and one at least knows.
    assert "sent_before" in told if copies == 1 else 2 in told


async def test_the_second_of_two_senders_finds_two_copies(autojump_clock: MockClock) -> None:
    cluster = with_letters()
    stored = cluster._send

    def send_twice(request: RemotingCommand) -> RemotingCommand:
        stored(request)  # the other console was a moment faster
        return stored(request)

    for broker in cluster.brokers.values():
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = send_twice
    async with browser_of(cluster) as browser:
        assert (await resend(browser, KEY)).json["sent"]["copies"] == 2


async def test_two_requests_of_one_console_send_once(autojump_clock: MockClock) -> None:
    cluster = with_letters()
    codes: list[int] = []
    async with browser_of(cluster) as browser:

        async def send() -> None:
            codes.append((await resend(browser, KEY)).status)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(send)
    assert sent(cluster) == [b"letter 0"]
    assert sorted(codes) == [200, 429, 429, 429]


async def test_an_index_that_is_late_is_waited_for_and_not_believed(
    autojump_clock: MockClock,
) -> None:
    cluster = with_letters()
    query = cluster._query

    def late(request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields()["topic"] == "Orders":
            return answer_to(request, ResponseCode.QUERY_NOT_FOUND)
        return query(request)

    for broker in cluster.brokers.values():
        broker.handlers[RequestCode.QUERY_MESSAGE] = late
    async with browser_of(cluster) as browser:
        assert (await resend(browser, KEY)).json["sent"]["copies"] is None


@pytest.mark.parametrize("message_id", ["x", "0" * 32, "</script>", "\0", "😀"])
async def test_what_is_no_letter_of_the_group_is_not_sent(
    autojump_clock: MockClock, message_id: str
) -> None:
    cluster = with_letters()
    other = cluster.store("Orders", b"no letter", UNIQ_KEY="U")
    async with browser_of(cluster) as browser:
        for name in (message_id, other.offset_msg_id):
            answer = await resend(browser, name)
            assert (answer.status, answer.code) == (404, "no_letter")
    assert sent(cluster) == [b"no letter"]


async def test_a_letter_that_does_not_say_its_topic_is_not_sent(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.queues[f"%DLQ%{GROUP}"] = [[]]
    letter = cluster.store(f"%DLQ%{GROUP}", b"?", UNIQ_KEY=KEY)
    async with browser_of(cluster) as browser:
        assert (await resend(browser, letter.offset_msg_id)).code == "no_topic"
        listed = (await browser.get(f"/api/v1/dead-letters?group={GROUP}")).json["letters"]
        assert (listed[0]["origin_topic"], listed[0]["resent"]) == ("", None)


async def test_a_group_without_dead_letters_has_none(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        answer = await browser.get(f"/api/v1/dead-letters?group={GROUP}")
        assert (answer.json["total"], answer.json["letters"]) == (0, [])


async def test_a_send_that_is_not_answered_may_have_been_done(autojump_clock: MockClock) -> None:
    cluster = with_letters()
    for broker in cluster.brokers.values():
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None
    async with browser_of(cluster) as browser:
        said: list[str] = []
        browser.running.console.note = said.append
        answer = await resend(browser, KEY)
        assert (answer.status, answer.code) == (504, "timeout")
        order = f"somebody at 127.0.0.1: dead letter {KEY} of group {GROUP} is sent again"
        assert [each.rpartition(": ")[0].startswith(order) for each in said] == [True]
        assert not said[0].endswith(": done")
        assert answer.json["error"]["details"]["outcome_unknown"]
        assert not browser.running.console.resending


@pytest.mark.parametrize(
    "body",
    [{}, {"group": GROUP}, {"group": GROUP, "id": 1}, {"group": GROUP, "id": "x", "again": "yes"},
     {"group": GROUP, "id": "x", "other": 1}, {"group": "", "id": "x"}],
)  # fmt: skip
async def test_the_fields_have_to_be_right(autojump_clock: MockClock, body: object) -> None:
    async with browser_of(with_letters()) as browser:
        assert (await browser.post(RESEND, body)).code == "bad_parameter"
