import anyio
import pytest

from tandem.client.async_shell import AsyncShell
from tandem.client.consumer_settings import ConsumerSettings
from tandem.client.core import ClientCore
from tandem.client.cursor import Cursor
from tandem.client.errors import BrokerError
from tandem.client.event_loop import LoopClock
from tandem.client.pull_flow import Puller
from tandem.client.queue_reader import LOCK_LIVES_SECONDS, QueueReader
from tandem.client.results import MessageQueue
from tandem.wire.message import MessageExt
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.consumer_world import World, a_world, until
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import IDENTITY, NAME_SERVER, answer_to, message_ext
from tests.tandem.client.group_broker import GROUP

QUEUE = MessageQueue("orders", "broker-a", 0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A reader that is not running: what it is given, and what it hands out."""

    def __init__(self, **settings: object) -> None:
        self.clock = Clock()
        self.out: list[MessageExt] = []
        self.cursor = Cursor(QUEUE, 0, None, "*")
        self.reader = QueueReader(
            self.cursor,
            ConsumerSettings(GROUP, **settings),  # type: ignore[arg-type]
            lambda _, message: self.out.append(message),
            self.clock,
        )

    def line_up(self, count: int) -> None:
        messages = [message_ext(b"%d" % at, queue_offset=at) for at in range(count)]
        self.reader.process_queue.took_in(messages, count)
        self.reader._line.extend(messages)
        self.reader.let_next_out()

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.out]


async def run_at(world: World, bench: Bench) -> bool:
    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=LoopClock(), consumer_group=GROUP)
    shell = AsyncShell(core, world.network.open_stream)
    await shell.open()
    try:
        return await bench.reader.run(shell, Puller(core, GROUP))
    finally:
        await shell.close(politely=False)


@under_either_loop
async def test_an_ordered_queue_hands_out_the_next_when_the_one_before_is_done() -> None:
    bench = Bench(orderly=True)
    bench.line_up(3)
    assert bench.bodies() == []
    bench.reader.locked()
    bench.reader.let_next_out()
    assert bench.bodies() == [b"0"]
    bench.reader.finished(0)
    assert bench.bodies() == [b"0", b"1"]


@under_either_loop
async def test_nothing_goes_out_when_the_lock_is_old() -> None:
    bench = Bench(orderly=True)
    bench.reader.locked()
    bench.line_up(3)
    bench.clock.now += LOCK_LIVES_SECONDS
    bench.reader.finished(0)
    assert bench.bodies() == [b"0"]
    bench.reader.locked()
    assert bench.bodies() == [b"0", b"1"]


@under_either_loop
async def test_nothing_goes_out_again_when_the_lock_is_old() -> None:
    bench = Bench(orderly=True)
    bench.reader.locked()
    bench.line_up(2)
    bench.clock.now += LOCK_LIVES_SECONDS
    bench.reader.again(bench.out[0])
    assert bench.bodies() == [b"0"]
    bench.reader.locked()
    assert bench.bodies() == [b"0", b"0"]


@under_either_loop
async def test_a_message_goes_out_again_and_is_counted_until_it_is_done() -> None:
    bench = Bench(orderly=True)
    bench.reader.locked()
    bench.line_up(2)
    bench.reader.again(bench.out[0])
    assert bench.bodies() == [b"0", b"0"]
    assert bench.reader.tries_here(0) == 1
    bench.reader.finished(0)
    assert bench.reader.tries_here(0) == 0
    bench.reader.drop()
    bench.reader.again(bench.out[0])
    assert bench.bodies() == [b"0", b"0", b"1"]


@under_either_loop
async def test_a_full_queue_is_not_pulled_until_there_is_room() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, *[b"%d" % at for at in range(10)])
        bench = Bench(pull_threshold_for_queue=4, pull_batch_size=2)
        world.tasks.start_soon(run_at, world, bench)
        await until(lambda: len(bench.out) == 4)
        await anyio.sleep(0.02)
        assert len(bench.out) == 4
        bench.reader.finished(0)
        await until(lambda: len(bench.out) == 6)
        bench.reader.drop()


@under_either_loop
async def test_large_bodies_fill_a_queue_too() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, *[b"x" * 100] * 10)
        bench = Bench(pull_threshold_bytes_for_queue=250, pull_batch_size=1)
        world.tasks.start_soon(run_at, world, bench)
        await until(lambda: len(bench.out) == 3)
        await anyio.sleep(0.02)
        assert len(bench.out) == 3
        bench.reader.drop()


@under_either_loop
async def test_it_ends_when_an_operator_has_moved_the_group() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        bench = Bench()
        bench.cursor.follows_resets = True
        bench.cursor.offset = 2
        world.broker.move_to["orders", 0] = 1
        assert await run_at(world, bench)
        assert bench.reader.next_offset == 1


@under_either_loop
async def test_a_refusal_that_does_not_pass_comes_out() -> None:
    async with a_world() as world:
        world.broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
            request, ResponseCode.SUBSCRIPTION_PARSE_FAILED
        )
        with pytest.raises(BrokerError):
            await run_at(world, Bench())


@under_either_loop
async def test_a_message_that_waited_past_its_lock_goes_back_to_the_front() -> None:
    bench = Bench(orderly=True)
    bench.reader.locked()
    bench.line_up(2)
    assert bench.reader.may_still_go_out(bench.out[0])
    bench.clock.now += LOCK_LIVES_SECONDS
    assert not bench.reader.may_still_go_out(bench.out[0])
    bench.reader.locked()
    assert bench.bodies() == [b"0", b"0"]
    bench.reader.drop()
    assert not bench.reader.may_still_go_out(bench.out[0])
