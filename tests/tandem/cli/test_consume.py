import base64
import json

import pytest
import trio
import typer
from trio.testing import MockClock

from tandem.cli.consume import Choices, Format, _checked_start, _Reader
from tandem.client import BrokerError, MessageQueue, PullConsumer, RouteNotFoundError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.tandem.cli.conftest import Tandem
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    FakeNetwork,
    answer_to,
)

# Those that need a cluster share it.
pytestmark = pytest.mark.xdist_group("one cluster of the command line")


@pytest.mark.parametrize(
    ("start", "group", "checked"),
    [
        (None, "", "earliest"),
        (None, "readers", "committed"),
        ("latest", "", "latest"),
        ("earliest", "readers", "earliest"),
        ("17", "", "17"),
    ],
)
def test_where_to_begin(start: str | None, group: str, checked: str) -> None:
    assert _checked_start(start, group) == checked


@pytest.mark.parametrize("start", ["committed", "yesterday", "-1", "1.5"])
def test_a_beginning_that_makes_no_sense_is_refused(start: str) -> None:
    with pytest.raises(typer.BadParameter):
        _checked_start(start, "")


def choices(**changes: object) -> Choices:
    defaults: dict[str, object] = {
        "topic": "orders",
        "group": "",
        "start": "earliest",
        "tags": "*",
        "count_max": None,
        "follow": True,
        "format": Format.TEXT,
    }
    return Choices(**{**defaults, **changes})  # type: ignore[arg-type]  # defaults of a test


async def test_a_follower_lives_through_a_switch_and_does_not_go_back(
    autojump_clock: MockClock, nursery: trio.Nursery, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    broker = FakeBroker()
    broker.store("orders", 0, b"one", b"two", b"three")
    pull = broker.handlers[RequestCode.PULL_MESSAGE]
    beyond_end = PullMessageResponseHeader(0, 1, 0, 1)
    troubles = iter(
        [
            lambda request: answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE),
            lambda request: answer_to(request, ResponseCode.PULL_OFFSET_MOVED, beyond_end),
        ]
    )

    def pull_in_trouble(request: RemotingCommand) -> RemotingCommand | None:
        return next(troubles, pull)(request)

    broker.handlers[RequestCode.PULL_MESSAGE] = pull_in_trouble
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        reader = _Reader(consumer, choices(start="2", count_max=1))
        with trio.fail_after(60):
            await reader.follow(MessageQueue("orders", "broker-a", 0), lambda: None)
    written = capfdbinary.readouterr()
    assert written.out == b"three\n"
    assert b"ends at 1, before 2; waiting" in written.err


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED])
async def test_a_node_that_lacks_messages_is_asked_again_in_a_while_and_none_is_passed_over(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    capfdbinary: pytest.CaptureFixture[bytes],
    code: ResponseCode,
) -> None:
    """While the master cannot be reached, the messages may be gone elsewhere, or not there yet."""
    master, slave = FakeBroker(), FakeBroker()
    master.store("orders", 0, b"one", b"two")
    stays = 0 if code is ResponseCode.PULL_NOT_FOUND else 2
    lacking = PullMessageResponseHeader(0, stays, stays, 2)
    slave.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(request, code, lacking)
    network = FakeNetwork(nursery, {NAME_SERVER: master, MASTER: master, SLAVE: slave})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        queue = MessageQueue("orders", "broker-a", 0)
        assert await consumer.max_offset(queue) == 2
        answer, answers = master.handlers[RequestCode.PULL_MESSAGE], iter(range(1))

        def lose_the_first(request: RemotingCommand) -> RemotingCommand | None:
            return None if next(answers, None) is not None else answer(request)

        master.handlers[RequestCode.PULL_MESSAGE] = lose_the_first
        with trio.fail_after(60):
            await _Reader(consumer, choices(follow=False)).read_to_end(queue)
    assert capfdbinary.readouterr().out == b"one\ntwo\n"
    assert 1 <= len([each for each in slave.codes() if each == RequestCode.PULL_MESSAGE]) < 20


async def test_a_follower_ends_with_a_refusal_that_does_not_pass(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = FakeBroker()
    broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(request, 16)
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        with pytest.raises(BrokerError):
            await _Reader(consumer, choices()).follow(
                MessageQueue("orders", "broker-a", 0), lambda: None
            )


@pytest.fixture
def ten(tandem: Tandem, request: pytest.FixtureRequest) -> str:
    """A topic with ten messages in its queue 0."""
    topic: str = request.node.name[:100].replace("[", "-").replace("]", "")
    lines = "\n".join(f"line {number}" for number in range(10))
    assert tandem("produce", topic, "--queue", "0", "--key", "k1", input=lines).exit_code == 0
    return topic


@pytest.mark.fault
def test_a_topic_is_printed_from_an_offset_and_up_to_a_count(tandem: Tandem, ten: str) -> None:
    assert tandem("consume", ten, "--max", "2").stdout.splitlines() == ["line 0", "line 1"]
    assert tandem("consume", ten, "--from", "8").stdout.splitlines() == ["line 8", "line 9"]
    assert tandem("consume", ten, "--from", "latest").stdout == ""


@pytest.mark.fault
def test_a_group_goes_on_where_it_stopped(tandem: Tandem, ten: str) -> None:
    def consume(*options: str) -> list[str]:
        return tandem("consume", ten, "--group", "readers", *options).stdout.splitlines()

    assert consume("--max", "3") == ["line 0", "line 1", "line 2"]
    assert consume("--max", "1") == ["line 3"]
    assert len(consume()) == 6
    assert consume() == []
    assert len(consume("--from", "earliest")) == 10


@pytest.mark.fault
def test_following_ends_when_enough_was_printed(tandem: Tandem, ten: str) -> None:
    read = tandem("consume", ten, "--follow", "--max", "10")
    assert len(read.stdout.splitlines()) == 10


@pytest.mark.fault
def test_json_has_everything_about_a_message(tandem: Tandem, ten: str) -> None:
    line = tandem("consume", ten, "--format", "json", "--max", "1").stdout
    record = json.loads(line)
    assert record["body"] == "line 0"
    assert (record["topic"], record["queue_id"], record["queue_offset"]) == (ten, 0, 0)
    assert record["properties"]["KEYS"] == "k1"


@pytest.mark.fault
def test_a_body_that_is_no_text_is_printed_as_it_is_or_in_base64(tandem: Tandem) -> None:
    tandem("produce", "bytes-topic", input=b"\xff\xfe")
    assert tandem("consume", "bytes-topic").stdout_bytes == b"\xff\xfe\n"
    record = json.loads(tandem("consume", "bytes-topic", "--format", "json").stdout)
    assert base64.b64decode(record["body_base64"]) == b"\xff\xfe"


@pytest.mark.fault
def test_a_topic_that_is_not_there_is_told(tandem: Tandem) -> None:
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        tandem("consume", "nowhere")
