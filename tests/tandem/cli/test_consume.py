import base64
import json
import os
import signal

import pytest
import trio
from trio.testing import MockClock
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.cli.consume import Choices, Reader
from tandem.cli.interrupts import stopped_by_signals
from tandem.cli.message_format import BodyForm
from tandem.cli.message_printers import message_printer
from tandem.cli.output import CommandError
from tandem.cli.queue_places import Place
from tandem.client import (
    BrokerError,
    MessageDamagedError,
    MessageQueue,
    PullConsumer,
    RouteNotFoundError,
)
from tandem.client.pull_flow import BEYOND_END_SECONDS
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.support.patience import PATIENCE_SECONDS
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


def choices(**changes: object) -> Choices:
    defaults: dict[str, object] = {"topic": "orders", "follow": True}
    return Choices(**{**defaults, **changes})  # type: ignore[arg-type]  # defaults of a test


def reader_of(consumer: PullConsumer, **changes: object) -> Reader:
    return Reader(consumer, choices(**changes), message_printer("text", BodyForm.TEXT))


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
        reader = reader_of(consumer, start=Place(offset=2), count_max=1)
        with trio.fail_after(PATIENCE_SECONDS):
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
        with trio.fail_after(PATIENCE_SECONDS):
            await reader_of(consumer, follow=False).read_to_end(queue)
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
            await reader_of(consumer).follow(MessageQueue("orders", "broker-a", 0), lambda: None)


@pytest.mark.parametrize("follows", [True, False])
async def test_a_group_past_the_end_is_an_error_that_says_how_to_go_on(
    autojump_clock: MockClock, nursery: trio.Nursery, *, follows: bool
) -> None:
    broker = FakeBroker()
    broker.store("orders", 0, b"one", b"two")
    broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: answer_to(
        request, ResponseCode.SUCCESS, OffsetResponseHeader(9)
    )
    moved = PullMessageResponseHeader(0, 2, 0, 2)
    broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
        request, ResponseCode.PULL_OFFSET_MOVED, moved
    )
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        queue = MessageQueue("orders", "broker-a", 0)
        start = Place(word="committed")
        reader = reader_of(consumer, start=start, group="CG", follow=follows)
        began = trio.current_time()
        with (
            trio.fail_after(PATIENCE_SECONDS),
            pytest.raises(CommandError, match=r"ends at 2, before 9.*tandem group reset CG"),
        ):
            if follows:
                await reader.follow(queue, lambda: None)
            else:
                await reader.read_to_end(queue)
        assert BEYOND_END_SECONDS <= trio.current_time() - began < 2 * BEYOND_END_SECONDS


async def test_a_damaged_message_is_said_once_and_ends_a_reader_up_to_the_end(
    autojump_clock: MockClock, nursery: trio.Nursery, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    broker = FakeBroker()
    broker.store("orders", 0, b"one", b"two", b"three")
    whole = broker.handlers[RequestCode.PULL_MESSAGE]

    def damaged(request: RemotingCommand) -> RemotingCommand | None:
        offset = request.decode_header(PullMessageRequestHeader).queue_offset
        ext = DamagedMessageHeader(offset, 1000)
        return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE, ext, b"", "it is damaged")

    broker.handlers[RequestCode.PULL_MESSAGE] = damaged
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        queue = MessageQueue("orders", "broker-a", 0)
        with pytest.raises(MessageDamagedError):
            await reader_of(consumer, follow=False).read_to_end(queue)
        written = capfdbinary.readouterr()
        assert written.out == b""
        assert written.err.count(b"it is damaged") == 1
        # One that follows waits, and goes on when it is healed.
        reader = reader_of(consumer, start=Place(offset=0), count_max=3)
        nursery.start_soon(reader.follow, queue, lambda: None)
        await trio.sleep(100)
        assert reader.count == 0
        broker.handlers[RequestCode.PULL_MESSAGE] = whole
        await trio.sleep(5)
        assert reader.count == 3
    assert capfdbinary.readouterr().out == b"one\ntwo\nthree\n"


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
    line = tandem("consume", ten, "--format", "jsonl", "--max", "1").stdout
    record = json.loads(line)
    assert record["body"] == "line 0"
    assert (record["topic"], record["queue_id"], record["queue_offset"]) == (ten, 0, 0)
    assert record["properties"]["KEYS"] == "k1"


@pytest.mark.fault
def test_a_body_that_is_no_text_is_printed_as_it_is_or_in_base64(tandem: Tandem) -> None:
    tandem("produce", "bytes-topic", input=b"\xff\xfe")
    assert tandem("consume", "bytes-topic").stdout_bytes == b"\xff\xfe\n"
    record = json.loads(tandem("consume", "bytes-topic", "--format", "jsonl").stdout)
    assert base64.b64decode(record["body_base64"]) == b"\xff\xfe"


@pytest.mark.fault
def test_a_topic_that_is_not_there_is_told(tandem: Tandem) -> None:
    with pytest.raises(RouteNotFoundError) as caught:
        tandem("consume", "nowhere")
    assert caught.value.topic == "nowhere"


@pytest.mark.fault
def test_a_part_of_a_topic_is_printed_up_to_a_place(tandem: Tandem, ten: str) -> None:
    assert tandem("consume", ten, "--from", "4", "--to", "6").stdout == "line 4\nline 5\n"
    assert tandem("consume", ten, "--to", "earliest").stdout == ""
    assert len(tandem("consume", ten, "--from", "-1h", "--to", "99").stdout.splitlines()) == 10
    assert tandem("consume", ten, "--to", "-1h").stdout == ""
    assert tandem("consume", ten, "--from", "4", "--queue", "1").stdout == ""


@pytest.mark.fault
def test_a_group_counts_as_read_what_a_filter_leaves_out(tandem: Tandem, ten: str) -> None:
    assert len(tandem("consume", ten, "--key", "k1").stdout.splitlines()) == 10
    assert tandem("consume", ten, "--key", "k", "--group", "others").stdout == ""
    assert tandem("consume", ten, "--group", "others").stdout == ""
    assert len(tandem("consume", ten, "--to", "committed", "--group", "others").stdout) == 0
    again = tandem("consume", ten, "--from", "0", "--to", "committed", "--group", "others")
    assert len(again.stdout.splitlines()) == 10


@pytest.mark.fault
def test_a_template_says_what_is_printed(tandem: Tandem, ten: str) -> None:
    read = tandem("consume", ten, "--format", "%t %p@%o [%k] %v", "--max", "2")
    assert read.stdout == f"{ten} 0@0 [k1] line 0\n{ten} 0@1 [k1] line 1\n"


@pytest.mark.fault
def test_an_expression_is_refused_with_what_to_set(tandem: Tandem, ten: str) -> None:
    with pytest.raises(CommandError, match="enable_property_filter: true"):
        tandem("consume", ten, "--sql", "a > 5")


@pytest.mark.fault
def test_a_queue_that_is_not_there_is_a_usage_error(tandem: Tandem, ten: str) -> None:
    with pytest.raises(CommandError) as caught:
        tandem("consume", ten, "--queue", "99")
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "yesterday"], "'yesterday' is no place"),
        (["--from", "committed"], "add --group"),
        (["--follow", "--to", "5"], "--follow never does"),
        (["--follow", "--format", "json"], "take jsonl"),
        (["--format", "yaml"], "'yaml' is no format"),
        (["--format", "%q"], "%q is no field"),
        (["--sql", "a > 5", "--tags", "b"], "in the expression"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anybody_is_asked(
    options: list[str], words: str
) -> None:
    line = ["consume", "orders", "-n", "127.0.0.1:1", *options]
    result = CliRunner().invoke(app, line, prog_name="tandem")
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("code", "remark", "words"),
    [
        (1, "The broker does not support consumer to filter message by SQL92", "restart its nodes"),
        (23, "Encountered: >", "cannot read the expression: Encountered: >"),
    ],
)
async def test_a_broker_that_takes_no_expression_is_not_asked_again(
    autojump_clock: MockClock, nursery: trio.Nursery, code: int, remark: str, words: str
) -> None:
    broker = FakeBroker()
    broker.store("orders", 0, b"one")
    broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
        request, code, remark=remark
    )
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        with pytest.raises(CommandError, match=words):
            await reader_of(consumer, sql="a >").follow(
                MessageQueue("orders", "broker-a", 0), lambda: None
            )


async def test_what_queues_have_in_common_is_said_once_and_that_it_is_over(
    autojump_clock: MockClock, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = FakeBroker()
    for queue_id in (0, 1):
        broker.store("orders", queue_id, b"one")
    pull = broker.handlers[RequestCode.PULL_MESSAGE]
    refusals = iter(range(6))

    def refuse_first(request: RemotingCommand) -> RemotingCommand | None:
        if next(refusals, None) is not None:
            return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark="not yet")
        return pull(request)

    broker.handlers[RequestCode.PULL_MESSAGE] = refuse_first
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        reader = reader_of(consumer, count_max=2)
        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as reading:
                for queue_id in (0, 1):
                    queue = MessageQueue("orders", "broker-a", queue_id)
                    reading.start_soon(reader.follow, queue, reading.cancel_scope.cancel)
    err = capsys.readouterr().err
    assert err.count("not yet; trying again") == 1
    assert err.count("reading again") == 1


async def test_offsets_that_are_not_stored_when_it_is_stopped_are_stored_then(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = FakeBroker()
    broker.store("orders", 0, b"one", b"two")
    asked: list[RemotingCommand] = []

    def never(request: RemotingCommand) -> None:
        asked.append(request)

    broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = never
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        reader = reader_of(consumer, group="CG")
        with trio.move_on_after(1):
            await reader.follow(MessageQueue("orders", "broker-a", 0), lambda: None)
        assert len(asked) == 1
        broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = answer_to
        await reader.store_offsets()
        last = broker.requests[-1]
        assert last is not asked[0]
        assert last.code == RequestCode.UPDATE_CONSUMER_OFFSET
        assert last.decode_header(UpdateConsumerOffsetRequestHeader).commit_offset == 2
        await reader.store_offsets()
        assert broker.requests[-1] is last


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_reading_and_not_the_command(number: signal.Signals) -> None:
    seen: list[list[int]] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with stopped_by_signals() as stopped:
            seen.append(stopped)
            os.kill(os.getpid(), number)
            await trio.Event().wait()
    assert seen == [[number]]
    async with stopped_by_signals() as stopped:
        pass
    assert stopped == []
