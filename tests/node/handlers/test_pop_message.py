"""Pops, as clients of RocketMQ send them and read the answers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import trio

from node.errors import RequestError
from node.handlers import held_pops
from node.receive.requests import Batch, Found, Received
from tandem.wire.pop_headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_start_offsets
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tandem.wire.system_topics import JOURNAL_TOPIC, SCHEDULE_TOPIC
from tests.node.doubles import NOW_MS
from tests.node.handlers.inspected import put
from tests.node.handlers.pop_world import POP, PopWorld, handles_in, header, messages, popped

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/pop-live.json"
LIVE = {each["name"]: each for each in reversed(json.loads(DATA.read_text()))}


def fields_of(name: str) -> dict[str, str]:
    return dict(each.partition("=")[::2] for each in LIVE[name]["respExt"].split(", "))


async def test_the_fields_of_an_answer_are_those_of_rocketmq() -> None:
    world = PopWorld()
    put(world.broker, 3)
    put(world.broker, 2, queue_id=1)
    answer = world.pop()
    assert (answer.code, answer.remark) == (LIVE["pop"]["rc"], LIVE["pop"]["remark"])
    fields, expected = answer.ext_fields(), fields_of("pop")
    assert set(fields) == set(expected)
    for name in ("startOffsetInfo", "msgOffsetInfo"):
        assert set(fields[name].split(";")) == set(expected[name].split(";"))
    assert (fields["restNum"], fields["invisibleTime"]) == ("0", "60000")
    assert len(messages(answer)) == 5


async def test_what_was_handed_out_is_not_handed_out_again() -> None:
    world = PopWorld()
    put(world.broker, 3)
    assert len(world.popped()) == 3
    answer = world.pop()
    assert (answer.code, answer.remark) == (LIVE["pop-nothing"]["rc"], "NO_MESSAGE_IN_QUEUE")
    fields, expected = answer.ext_fields(), fields_of("pop-nothing")
    assert set(fields) == set(expected)
    assert (fields["startOffsetInfo"], fields["msgOffsetInfo"]) == ("", "")
    assert world.popped(consumer_group="Other") != []


async def test_one_queue_alone_and_no_more_messages_than_asked_for() -> None:
    world = PopWorld()
    put(world.broker, 3)
    put(world.broker, 3, queue_id=2)
    answer = world.pop(queue_id=2, max_msg_nums=2)
    assert decode_start_offsets(popped(answer).start_offset_info or "") == {
        PoppedQueue(TopicMark.NORMAL, 2): 0
    }
    assert len(messages(answer)) == 2
    assert len(world.popped(max_msg_nums=32)) == 4


async def test_a_group_that_is_new_may_begin_at_the_end() -> None:
    world = PopWorld()
    put(world.broker, 3)
    found = handles_in(world.pop(init_mode=1))
    # While the first message is young, RocketMQ begins with it; see `node.receive.taking`.
    assert [handle.queue_offset for _, handle in found] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["TAG", None])
async def test_tags_that_are_not_wanted_do_not_come(kind: str | None) -> None:
    world = PopWorld()
    put(world.broker, tag="a")
    put(world.broker, tag="b")
    put(world.broker, tag="a")
    found = handles_in(world.pop(exp="a", exp_type=kind))
    assert [handle.queue_offset for _, handle in found] == [0, 2]
    assert {handle.start_offset for _, handle in found} == {0}
    assert world.popped() == []


async def test_a_filter_by_properties() -> None:
    world = PopWorld()
    put(world.broker, tag="a")
    put(world.broker, tag="b")
    found = handles_in(world.pop(exp="TAGS = 'b'", exp_type="SQL92"))
    assert [handle.queue_offset for _, handle in found] == [1]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"max_msg_nums": 33}, "pop-33"),
        ({"queue_id": 4}, "pop-badq"),
        ({"topic": "TX"}, "pop-notopic"),
        ({"exp": "a >", "exp_type": "SQL92"}, "pop-badsql"),
    ],
)
async def test_what_rocketmq_refuses_is_refused(changes: dict[str, object], name: str) -> None:
    assert PopWorld().pop(**changes).code == LIVE[name]["rc"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": -1}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": 1 << 62}, ResponseCode.INVALID_PARAMETER),
        ({"topic": JOURNAL_TOPIC}, ResponseCode.NO_PERMISSION),
        ({"topic": SCHEDULE_TOPIC}, ResponseCode.NO_PERMISSION),
        ({"consumer_group": "CID_RMQ_SYS_TRANS"}, ResponseCode.NO_PERMISSION),
        ({"consumer_group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_what_makes_no_sense_is_refused(
    changes: dict[str, object], code: ResponseCode
) -> None:
    world = PopWorld()
    put(world.broker)
    assert world.pop(**changes).code == code
    assert len(world.popped()) == 1


async def test_a_group_that_may_not_consume_gets_nothing() -> None:
    world = PopWorld()
    put(world.broker)
    world.broker.tables.change_groups(SubscriptionGroupConfig("CG", consume_enable=False))
    assert world.pop().code == ResponseCode.NO_PERMISSION
    world.broker.tables.forbid("Other", "T", 1)
    assert world.pop(consumer_group="Other").code == ResponseCode.NO_PERMISSION


async def test_a_topic_that_may_not_be_read() -> None:
    world = PopWorld()
    world.broker.topics.update(TopicConfig(topic_name="T", perm=2))
    assert world.pop().code == ResponseCode.NO_PERMISSION


async def run_of(world: PopWorld, nursery: trio.Nursery) -> None:
    nursery.start_soon(world.broker.pop.run, world.broker.outbox.flush)
    await trio.testing.wait_all_tasks_blocked()


async def test_a_pop_waits_for_a_message(autojump_clock: trio.testing.MockClock) -> None:
    world = PopWorld()
    async with trio.open_nursery() as nursery:
        await run_of(world, nursery)
        opaque = world.client.send(POP, header(poll_time=15_000))
        assert world.client.answers() == []
        assert world.handlers.pop.held.held_count == 1
        await trio.sleep(5)
        put(world.broker)
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = world.client.answers()
        assert (answer.opaque, answer.code, len(messages(answer))) == (opaque, 0, 1)
        assert world.handlers.pop.held.held_count == 0
        nursery.cancel_scope.cancel()


async def test_a_pop_waits_no_longer_than_it_wants(autojump_clock: trio.testing.MockClock) -> None:
    world = PopWorld()
    async with trio.open_nursery() as nursery:
        await run_of(world, nursery)
        world.client.send(POP, header(poll_time=3_000))
        await trio.sleep(2.5)
        assert world.client.answers() == []
        await trio.sleep(1)
        (answer,) = world.client.answers()
        assert answer.code == LIVE["longpoll"]["rc"]
        assert set(answer.ext_fields()) == set(fields_of("longpoll"))
        nursery.cancel_scope.cancel()


async def test_nothing_is_handed_out_for_a_connection_that_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = PopWorld()
    async with trio.open_nursery() as nursery:
        await run_of(world, nursery)
        gone = world.new_client()
        gone.send(POP, header(poll_time=15_000))
        world.handlers.pop.held.connection_closed(gone.connection)
        assert world.handlers.pop.held.held_count == 0
        put(world.broker)
        await trio.testing.wait_all_tasks_blocked()
        assert len(world.popped()) == 1
        nursery.cancel_scope.cancel()


class Caller:
    """A user whose rights end."""

    share = None

    def __init__(self, *, is_refused: bool) -> None:
        self.is_refused = is_refused
        self.is_current = True

    def check(self, kind: object, name: str, *rights: object) -> None:
        if self.is_refused and not self.is_current:
            raise RequestError(ResponseCode.NO_PERMISSION, f"not {name}")


@pytest.mark.parametrize("code", [POP, RequestCode.NOTIFICATION])
async def test_who_may_read_no_more_is_answered_at_once(code: RequestCode) -> None:
    world = PopWorld()
    ext = header(poll_time=15_000) if code == POP else notification(poll_time=15_000)
    clients = {}
    for is_refused in (True, False):
        client = clients[is_refused] = world.new_client()
        client.connection.caller = caller = Caller(is_refused=is_refused)  # type: ignore[assignment]
        client.send(code, ext)
        caller.is_current = False
    world.handlers.pop.held.ask_of_the_changed()
    (answer,) = clients[True].answers()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert clients[False].answers() == []
    assert world.handlers.pop.held.held_count == 1
    put(world.broker)
    assert len(world.popped()) == 1


async def test_a_client_that_holds_too_many_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_pops, "HELD_PER_CONNECTION_MAX", 2)
    world = PopWorld()
    for _ in range(2):
        world.client.send(POP, header(poll_time=15_000))
    assert world.pop(poll_time=15_000).code == ResponseCode.POLLING_FULL
    ext = world.client.call(RequestCode.NOTIFICATION, notification(poll_time=15_000))
    assert ext.decode_header(NotificationResponseHeader) == NotificationResponseHeader(
        has_msg=False, polling_full=True
    )
    other = world.new_client()
    other.send(POP, header(poll_time=15_000))
    assert other.answers() == []
    put(world.broker)
    assert world.pop(poll_time=15_000).code == ResponseCode.SUCCESS


def notification(**changes: object) -> NotificationRequestHeader:
    ext = NotificationRequestHeader("CG", "T", -1, 0, NOW_MS)
    return msgspec.structs.replace(ext, **changes)


async def test_a_notification_says_whether_there_is_something() -> None:
    world = PopWorld()
    answer = world.client.call(RequestCode.NOTIFICATION, notification())
    assert (answer.code, answer.ext_fields()) == (0, fields_of("notification"))
    put(world.broker)
    for _ in range(2):
        answer = world.client.call(RequestCode.NOTIFICATION, notification())
        assert answer.ext_fields() == {"hasMsg": "true", "pollingFull": "false"}
    world.pop()
    answer = world.client.call(RequestCode.NOTIFICATION, notification())
    assert answer.ext_fields()["hasMsg"] == "false"


async def test_a_notification_waits(autojump_clock: trio.testing.MockClock) -> None:
    world = PopWorld()
    async with trio.open_nursery() as nursery:
        await run_of(world, nursery)
        world.client.send(RequestCode.NOTIFICATION, notification(poll_time=15_000))
        assert world.client.answers() == []
        put(world.broker)
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = world.client.answers()
        assert answer.ext_fields()["hasMsg"] == "true"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("born_time", [0, 1, NOW_MS + 3_600_000])
async def test_when_a_request_was_born_changes_nothing(born_time: int) -> None:
    """A proxy says nothing of it, and clocks disagree: brokers of 5.3 that ask for rights answer
    such a pop at once with POLLING_TIMEOUT (PopMessageRequestHeader.isTimeoutTooMuch)."""
    world = PopWorld()
    put(world.broker)
    assert len(world.popped(born_time=born_time)) == 1
    world.client.send(POP, header(born_time=born_time, poll_time=15_000))
    assert world.client.answers() == []


async def test_how_many_wait_under_exactly_one_queue() -> None:
    world = PopWorld()
    for queue_id in (-1, -1, 2):
        world.client.send(POP, header(queue_id=queue_id, poll_time=15_000))

    def waiting(queue_id: int) -> int:
        ext = PollingInfoRequestHeader("CG", "T", queue_id)
        answer = world.client.call(RequestCode.POLLING_INFO, ext)
        assert set(answer.ext_fields()) == set(fields_of("pollinginfo"))
        return answer.decode_header(PollingInfoResponseHeader).polling_num

    assert [waiting(queue_id) for queue_id in (-1, 0, 2)] == [2, 0, 1]


async def test_looking_at_messages_changes_nothing() -> None:
    world = PopWorld()
    put(world.broker, 3)
    ext = PeekMessageRequestHeader("CG", "T", -1, 2)
    for _ in range(2):
        answer = world.client.call(RequestCode.PEEK_MESSAGE, ext)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert set(answer.ext_fields()) == set(fields_of("peek"))
        assert [message.queue_offset for message in messages(answer)] == [0, 1]
        assert popped(answer).rest_num == 1
    assert len(world.popped(max_msg_nums=2)) == 2
    answer = world.client.call(RequestCode.PEEK_MESSAGE, ext)
    assert [message.queue_offset for message in messages(answer)] == [2]
    world.pop()
    answer = world.client.call(RequestCode.PEEK_MESSAGE, ext)
    assert (answer.code, popped(answer).rest_num) == (ResponseCode.PULL_NOT_FOUND, 0)
    ext = msgspec.structs.replace(ext, max_msg_nums=0)
    assert world.client.call(RequestCode.PEEK_MESSAGE, ext).code == ResponseCode.INVALID_PARAMETER


async def test_messages_in_order_say_how_often_they_came() -> None:
    world = PopWorld()
    put(world.broker, 2)
    answer = world.pop(order=True, queue_id=0, attempt_id="a1")
    fields, expected = answer.ext_fields(), fields_of("orderpop")
    assert set(fields) == set(expected)
    assert fields["orderCountInfo"] == expected["orderCountInfo"]
    assert fields["reviveQid"] == expected["reviveQid"]
    blocked = world.pop(order=True, queue_id=0, attempt_id="a2")
    assert (blocked.code, blocked.ext_fields()["orderCountInfo"]) == (210, "")
    again = world.pop(order=True, queue_id=0, attempt_id="a1")
    assert again.ext_fields()["msgOffsetInfo"] == "0 0 0,1"


class Serves:
    """In place of a service: what was received."""

    def __init__(self, received: Received) -> None:
        self._received = received

    def receive(self, request: object, done: object, client: object) -> None:
        done(self._received)  # type: ignore[operator]


async def test_counts_are_written_as_rocketmq_writes_them() -> None:
    """As the steps of ConsumerOrderInfoManager in its vectors."""
    world = PopWorld()
    batch = Batch("T", TopicMark.NORMAL, 2, 105, (105, 106), b"", (2, 1))
    for counts, text in (((2, 1), "0 qo2%105 1;0 2 0"), ((3, 2), "0 qo2%105 2;0 qo2%106 1;0 2 1")):
        received = Received(
            Found.FOUND, 1, 2, 999, 0, (msgspec.structs.replace(batch, counts=counts),)
        )
        world.handlers.pop._service = Serves(received)  # type: ignore[assignment]
        assert world.pop(order=True).ext_fields()["orderCountInfo"] == text


async def test_who_pops_is_counted_like_who_pulls() -> None:
    world = PopWorld()
    put(world.broker, 3)
    world.pop()
    assert world.broker.stats.found == 1
    world.pop()
    assert world.broker.stats.missed == 1
