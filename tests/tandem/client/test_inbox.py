import anyio

from tandem.client.inbox import Inbox
from tandem.client.running_loop import running_event_loop
from tests.tandem.client.consumer_world import FakeReader
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import message_ext


def an_inbox() -> tuple[Inbox, list[bytes]]:
    loop = running_event_loop()
    return Inbox(loop.parked), []


async def take_one(inbox: Inbox, taken: list[bytes]) -> None:
    while (item := inbox.take()) is None and not inbox.is_over:
        await inbox.wait()
    if item is not None:
        taken.append(item[1].body)


@under_either_loop
async def test_each_message_wakes_one_task() -> None:
    inbox, taken = an_inbox()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(take_one, inbox, taken)
        await anyio.sleep(0.01)
        for body in (b"a", b"b", b"c"):
            inbox.offer(FakeReader(), message_ext(body))
    assert taken == [b"a", b"b", b"c"]
    assert inbox.take() is None


@under_either_loop
async def test_a_message_that_was_meant_for_a_cancelled_task_goes_to_another() -> None:
    inbox, taken = an_inbox()
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def take_but_be_cancelled() -> None:
            with scope:
                await take_one(inbox, taken)

        group.start_soon(take_but_be_cancelled)
        await anyio.sleep(0.01)
        group.start_soon(take_one, inbox, taken)
        await anyio.sleep(0.01)
        inbox.offer(FakeReader(), message_ext(b"a"))
        scope.cancel()
        await anyio.sleep(0.01)
        inbox.end()
    assert taken == [b"a"]


@under_either_loop
async def test_messages_of_a_lost_queue_are_not_handed_out() -> None:
    inbox, _ = an_inbox()
    lost, kept = FakeReader(), FakeReader()
    inbox.offer(lost, message_ext(b"lost"))
    inbox.offer(kept, message_ext(b"kept"))
    lost.process_queue.is_dropped = True
    item = inbox.take()
    assert item is not None
    assert item[1].body == b"kept"


@under_either_loop
async def test_a_paused_inbox_keeps_what_comes() -> None:
    inbox, taken = an_inbox()
    inbox.pause()
    inbox.offer(FakeReader(), message_ext(b"a"))
    async with anyio.create_task_group() as group:
        group.start_soon(take_one, inbox, taken)
        await anyio.sleep(0.01)
        assert taken == []
        inbox.resume()
    assert taken == [b"a"]


@under_either_loop
async def test_the_end_wakes_everybody_and_the_first_error_stays() -> None:
    inbox, taken = an_inbox()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(take_one, inbox, taken)
        await anyio.sleep(0.01)
        inbox.end(KeyError("first"))
        inbox.end(KeyError("second"))
    assert isinstance(inbox.error, KeyError)
    assert inbox.error.args == ("first",)
    inbox.offer(FakeReader(), message_ext(b"late"))
    assert inbox.take() is None


@under_either_loop
async def test_what_is_put_back_is_the_next() -> None:
    inbox, taken = an_inbox()
    for body in (b"a", b"b"):
        inbox.offer(FakeReader(), message_ext(body))
    first = inbox.take()
    assert first is not None
    inbox.put_back(*first)
    await take_one(inbox, taken)
    assert taken == [b"a"]


@under_either_loop
async def test_messages_of_a_lost_queue_are_let_go() -> None:
    inbox, _ = an_inbox()
    lost, kept = FakeReader(), FakeReader()
    inbox.pause()
    inbox.offer(lost, message_ext(b"lost"))
    inbox.offer(kept, message_ext(b"kept"))
    lost.process_queue.is_dropped = True
    inbox.forget_lost()
    assert [each.body for _, each in inbox._items] == [b"kept"]
