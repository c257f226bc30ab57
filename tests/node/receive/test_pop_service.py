from collections.abc import Callable

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.errors import RequestError
from node.receive.requests import Found, Handle, Received
from node.tables.replicated_pop import DeliveriesChanged
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.response_code import ResponseCode
from tests.node.receive.pop_world import DLQ, GROUP, RETRY, TOPIC, PopWorld, handles, messages


async def test_messages_are_handed_out_once_and_acknowledged(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    received = world.receive(2)
    assert [each.body for each in messages(received)] == [b"1", b"2"]
    assert (received.found, received.rest_count) == (Found.FOUND, 1)
    assert world.bodies() == [b"3"]
    assert world.receive().found is Found.NOTHING
    assert world.ack(*handles(received)) == [True, True]
    await world.wait(60)
    assert [each.body for each in world.stored(RETRY)] == [b"3"]


async def test_an_answer_waits_until_its_record_is_confirmed(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    answers = world.begin()
    world.end_round()
    assert not answers
    assert world.begin()[0].found is Found.NOTHING  # type: ignore[union-attr]
    world.confirm()
    assert [each.body for each in messages(answers[0])] == [b"1"]  # type: ignore[arg-type]


async def test_an_ack_waits_until_its_record_is_confirmed(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive())
    answers: list[object] = []
    world.pop.ack([handle], answers.append)
    world.end_round()
    assert not answers
    world.write_gathered()
    world.end_round()
    assert not answers
    world.confirm()
    assert answers == [[True]]


async def test_what_is_not_acknowledged_comes_again_when_its_time_is_over_and_not_before(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", properties=b"k\x01v\x02")
    first = world.receive(invisible_ms=5000)
    await world.wait(4.9)
    assert world.receive().found is Found.NOTHING
    await world.wait(0.2)
    received = world.receive()
    (again,) = messages(received)
    assert (again.body, again.reconsume_times, again.topic) == (b"1", 1, RETRY)
    assert again.properties == {"k": "v", "1ST_POP_TIME": str(first.pop_time_ms)}
    assert [batch.mark for batch in received.batches] == [TopicMark.RETRY_V1]
    assert world.ack(*handles(first)) == [False]
    assert world.ack(*handles(received)) == [True]
    await world.wait(60)
    assert len(world.stored(RETRY)) == 1


async def test_a_handle_of_the_old_master_is_good_at_the_new_one(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    done, held = handles(world.receive())
    after = world.successor()
    assert after.ack(done) == [True]
    await after.wait(11)
    assert [each.body for each in after.stored(RETRY)] == [b"2"]
    assert after.ack(held) == [False]


async def test_what_was_acknowledged_never_comes_again_after_a_switch(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    received = world.receive()
    world.ack(handles(received)[1])
    after = world.successor()
    await after.wait(11)
    assert [each.body for each in after.stored(RETRY)] == [b"1", b"3"]


async def test_a_message_comes_again_late_and_never_early_whatever_clocks_say(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    world.receive(invisible_ms=5000)
    await trio.sleep(3)
    after = world.successor(opens=False)
    after.skew_ms = 3_600_000
    after.open()
    await after.wait(4.5)
    assert after.stored(RETRY) == []
    await after.wait(0.6)
    assert len(after.stored(RETRY)) == 1


async def test_after_the_last_try_a_message_is_a_dead_letter_and_not_before(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(retries=2)
    world.put(b"1", properties=b"UNIQ_KEY\x01KEY\x02")
    times = []
    for _ in range(3):
        received = world.receive(invisible_ms=1000)
        times += [each.reconsume_times for each in messages(received)]
        assert world.stored(DLQ) == []
        await world.wait(1.1)
    assert times == [0, 1, 2]
    assert world.receive().found is Found.NOTHING
    (letter,) = world.stored(DLQ)
    assert letter.body == b"1"
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == TOPIC
    assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == "KEY"
    assert letter.properties["RETRY_TOPIC"] == TOPIC


async def test_a_changed_time_counts_from_then_on_and_the_old_handle_is_no_good(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    first, second = handles(world.receive(invisible_ms=5000))
    await trio.sleep(4)
    changed = world.change(first, 10_000)
    assert changed is not None
    assert changed.invisible_ms == 10_000
    await world.wait(2)
    assert [each.body for each in world.stored(RETRY)] == [b"2"]
    assert world.ack(first, second) == [False, False]
    await world.wait(7.9)
    assert len(world.stored(RETRY)) == 1
    await world.wait(0.2)
    assert [each.body for each in world.stored(RETRY)] == [b"2", b"1"]
    assert world.change(first, 1000) is None


async def test_a_message_can_be_given_back_at_once(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive())
    assert world.change(handle, 0) is not None
    await world.wait(0)
    assert world.bodies() == [b"1"]


async def test_an_extended_handle_stays_good(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive(invisible_ms=5000))
    await trio.sleep(4)
    answers: list[object] = []
    world.pop.extend(handle, 60_000, answers.append)
    world.confirm()
    await world.wait(30)
    assert world.stored(RETRY) == []
    assert world.pop.is_held(handle)
    assert world.ack(handle) == [True]
    assert not world.pop.is_held(handle)


async def test_the_groups_offset_is_the_first_that_is_not_done(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    first, second, third = handles(world.receive())
    await commit_offsets(world)
    assert world.offset() == 0
    world.ack(second)
    await commit_offsets(world)
    assert world.offset() == 0
    world.ack(first)
    await commit_offsets(world)
    assert world.offset() == 2
    world.ack(third)
    await commit_offsets(world)
    assert world.offset() == 3


async def commit_offsets(world: PopWorld) -> None:
    await trio.sleep(0.2)
    world.journal_tables.journal.writer.write_gathered()  # type: ignore[union-attr]
    world.confirm()


async def test_a_group_that_consumed_by_pull_goes_on_where_it_was(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    world.tables.commit(GROUP, TOPIC, 0, 2)
    await commit_offsets(world)
    assert world.bodies() == [b"3"]
    world.put(b"4", b"5")
    world.tables.commit(GROUP, TOPIC, 0, 4)
    await commit_offsets(world)
    assert world.bodies() == [b"5"]


async def test_all_queues_are_read_and_what_a_filter_does_not_want_is_done(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(queues=4)
    for queue_id in range(4):
        world.put(b"%d" % queue_id, queue_id=queue_id)
    assert sorted(world.bodies()) == [b"0", b"1", b"2", b"3"]
    world.put(b"x", b"y", queue_id=1)
    assert world.receive(tags_codes=frozenset({77})).found is Found.NOTHING
    assert world.pop.pop_offset(GROUP, TOPIC, 1) == 3
    assert world.receive().found is Found.NOTHING


async def test_a_request_that_finds_nothing_waits_for_a_message(autojump_clock: MockClock) -> None:
    world = PopWorld(queues=2)
    answers = world.begin(deadline=trio.current_time() + 5)
    world.end_round()
    assert world.pop.waiting_count(GROUP, TOPIC, -1) == 1
    world.put(b"1", queue_id=1)
    world.work()
    world.confirm()
    assert [each.body for each in messages(answers[0])] == [b"1"]  # type: ignore[arg-type]
    assert world.pop.waiting_count(GROUP, TOPIC, -1) == 0


async def test_one_that_waits_is_answered_when_its_time_is_up(autojump_clock: MockClock) -> None:
    world = PopWorld()
    answers = world.begin(deadline=trio.current_time() + 5)
    await world.wait(4.9)
    assert not answers
    await world.wait(0.2)
    assert [answer.found for answer in answers if isinstance(answer, Received)] == [Found.NOTHING]


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_what_is_not_acknowledged_comes_again_to_who_never_waits(
    *, is_fenced: bool, autojump_clock: MockClock
) -> None:
    """Nobody is parked: the task of the service knows by itself when a time is over."""
    world = PopWorld(is_fenced=is_fenced)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.pop.run, world.confirm)
        await trio.testing.wait_all_tasks_blocked()
        world.put(b"a")
        assert world.bodies(invisible_ms=60_000) == [b"a"]
        await trio.sleep(61)
        (a,) = handles(world.receive(invisible_ms=60_000))
        assert a.topic == RETRY
        await trio.sleep(1)  # the task sleeps until the 60 s are over
        world.change(a, 10_000)
        await trio.sleep(11)
        assert world.bodies() == [b"a"]
        nursery.cancel_scope.cancel()


async def test_what_comes_again_does_so_at_a_master_that_opens_while_its_task_looks(
    autojump_clock: MockClock,
) -> None:
    """The task is not woken there, and has seen nothing that could be over."""
    world = PopWorld()
    world.put(b"a")
    world.receive(invisible_ms=10_000)
    after = PopWorld(begins=False)
    is_open = False

    def end_round() -> None:
        nonlocal is_open
        if not is_open:
            is_open = True
            world.copy_to(after)
            after.open()
        after.confirm()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(after.pop.run, end_round)
        await trio.sleep(11)
        assert [each.body for each in after.stored(RETRY)] == [b"a"]
        nursery.cancel_scope.cancel()


async def test_the_task_sleeps_through_times_of_what_is_done(autojump_clock: MockClock) -> None:
    world = PopWorld()
    rounds = 0

    def end_round() -> None:
        nonlocal rounds
        rounds += 1
        world.confirm()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.pop.run, end_round)
        for _ in range(50):
            world.put(b"a")
            world.ack(*handles(world.receive(invisible_ms=60_000)))
            await trio.sleep(0.01)
        await trio.sleep(120)
        nursery.cancel_scope.cancel()
    assert rounds < 10


async def test_one_that_waits_gets_what_comes_again(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    world.receive(invisible_ms=2000)
    answers = world.begin(deadline=trio.current_time() + 15)
    await world.wait(2.1)
    world.work()
    world.confirm()
    assert [each.body for each in messages(answers[0])] == [b"1"]  # type: ignore[arg-type]


async def test_a_client_that_is_gone_gets_nothing_and_the_next_one_does(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    gone: list[object] = []
    waiting = world.pop.receive(world.request(deadline=trio.current_time() + 5), gone.append)
    answers = world.begin(deadline=trio.current_time() + 5)
    assert waiting is not None
    waiting.cancel()
    waiting.cancel()
    world.put(b"1")
    world.work()
    world.confirm()
    assert (len(gone), len(answers)) == (0, 1)


class SlowClient:
    """A client that does not read what it is sent."""

    is_closed = False
    is_congested = True

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def when_drained(self, call: Callable[[], None]) -> None:
        self.calls.append(call)


async def test_a_client_that_does_not_read_gets_nothing_before_it_does(
    autojump_clock: MockClock,
) -> None:
    world, slow, gone = PopWorld(), SlowClient(), SlowClient()
    answers: list[object] = []
    request = world.request(deadline=trio.current_time() + 5)
    world.pop.receive(request, answers.append, slow)
    waiting = world.pop.receive(request, answers.append, gone)
    assert waiting is not None
    world.put(b"1")
    for _ in range(2):
        world.work()
        world.confirm()
    assert (answers, world.pop.pop_offset(GROUP, TOPIC, 0)) == ([], None)
    waiting.cancel()
    slow.is_congested = gone.is_congested = False
    for call in gone.calls + slow.calls:
        call()
    world.confirm()
    assert [type(each) for each in answers] == [Received]


@pytest.mark.parametrize("is_gone", [True, False])
async def test_one_that_waits_is_looked_at_though_a_client_that_was_drained_takes_nothing(
    *, is_gone: bool, autojump_clock: MockClock
) -> None:
    """It waits neither for a message nor for its time then: only the task has it."""
    world, slow = PopWorld(), SlowClient()
    answers: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.pop.run, world.confirm)
        world.pop.receive(world.request(deadline=trio.current_time() + 5), answers.append, slow)
        world.put(b"1")
        await trio.testing.wait_all_tasks_blocked()
        assert world.bodies() == [b"1"]
        world.pop.receive(world.request(deadline=trio.current_time() + 50), answers.append)
        await trio.testing.wait_all_tasks_blocked()
        slow.is_closed = is_gone
        (call,) = slow.calls
        call()
        await trio.testing.wait_all_tasks_blocked()
        world.put(b"2")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    (answer,) = answers
    assert isinstance(answer, Received)
    assert [each.body for each in messages(answer)] == [b"2"]


async def test_what_wakes_a_request_that_is_cancelled_then_wakes_the_next_one(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    answers: list[object] = []
    notices: list[Found] = []
    request = world.request(deadline=trio.current_time() + 50)
    gone = [
        world.pop.receive(request, answers.append),
        world.pop.notify(request, notices.append),
    ]
    world.pop.notify(request, notices.append)
    world.pop.receive(request, answers.append)
    world.put(b"1")
    for each in gone:
        assert each is not None
        each.cancel()
    for _ in range(2):
        world.work()
    world.confirm()
    (answer,) = answers
    assert isinstance(answer, Received)
    assert [each.body for each in messages(answer)] == [b"1"]
    assert notices == [Found.FOUND]


async def test_one_that_waits_for_a_notice_gets_it_after_a_reset(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    assert world.ack(*handles(world.receive())) == [True]
    notices: list[Found] = []
    world.pop.notify(world.request(deadline=trio.current_time() + 50), notices.append)
    world.work()
    world.pop.reset(GROUP, TOPIC, 0, 0)
    world.tables.commit(GROUP, TOPIC, 0, 0)
    world.confirm()
    world.work()
    assert notices == [Found.FOUND]


async def test_what_nobody_can_ask_for_is_refused(autojump_clock: MockClock) -> None:
    world = PopWorld()
    for wrong in (
        {"count": 0},
        {"count": 33},
        {"invisible_ms": 0},
        {"attempt_id": "a" * 129},
        {"group": "g" * 250},
    ):
        (refused,) = world.begin(**wrong)
        assert isinstance(refused, RequestError), wrong


async def test_a_reset_forgets_what_is_with_consumers(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    earlier = handles(world.receive())
    world.pop.reset(GROUP, TOPIC, 0, 1)
    world.tables.commit(GROUP, TOPIC, 0, 1)
    assert world.begin()[0].found is Found.NOTHING  # type: ignore[union-attr]
    world.confirm()
    assert world.bodies() == [b"2", b"3"]
    assert world.ack(*earlier) == [False, False, False]
    await world.wait(60)
    assert [each.body for each in world.stored(RETRY)] == [b"2", b"3"]


async def test_nothing_is_handed_out_where_nothing_is_taken(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive())
    world.replication.demote("not now")
    for answers in (world.begin(), acked(world, handle)):
        assert isinstance(answers[0], RequestError)


def acked(world: PopWorld, handle: Handle) -> list[object]:
    answers: list[object] = []
    world.pop.ack([handle], answers.append)
    return answers


async def test_the_state_is_what_the_journal_says(autojump_clock: MockClock) -> None:
    world = PopWorld(queues=3)
    for queue_id in range(3):
        world.put(b"a", b"b", b"c", queue_id=queue_id)
    received = handles(world.receive(5))
    world.ack(*received[1:3])
    world.change(received[0], 20_000)
    await world.wait(11)
    assert world.state() == world.confirmed_state()
    after = world.successor()
    assert after.state() == world.state()


# -- a classic group -----------------------------------------------------------------------------


async def test_a_classic_master_answers_at_once_and_knows_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(b"1", b"2", b"3")
    (received,) = world.begin(2)
    assert isinstance(received, Received)
    first, second = handles(received)
    assert world.ack(first) == [True]
    world.tables.save()
    world.store.close()
    again = PopWorld(world.disk, is_fenced=False, begins=False)
    again.open()
    assert again.offset() == 1
    assert again.bodies() == [b"3"]
    assert again.ack(first, second) == [False, True]
    await again.wait(11)
    assert [each.body for each in again.stored(RETRY)] == [b"3"]


async def test_a_classic_master_that_lost_its_file_hands_out_again_what_is_not_done(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(b"1", b"2", b"3")
    world.ack(handles(world.receive(2))[0])
    world.tables.save()
    world.store.close()
    for name in ("pop.json", "pop.json.bak"):
        world.disk.remove(f"s/config/{name}")
    again = PopWorld(world.disk, is_fenced=False, begins=False)
    again.open()
    assert again.bodies() == [b"2", b"3"]


async def test_a_classic_master_whose_log_lost_its_end_hands_out_what_comes_in_its_place(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(b"1")
    world.store.sync_log()
    before = world.disk.crashed()
    world.put(b"2", b"3")
    world.ack(handles(world.receive())[2])
    world.tables.save()
    for name in ("pop.json", "consumerOffset.json", "subscriptionGroup.json", "topics.json"):
        content = world.disk.read(f"s/config/{name}")
        assert content is not None
        before.replace(f"s/config/{name}", content)
    again = PopWorld(before, is_fenced=False, begins=False)
    again.open()
    again.put(b"other 2", b"other 3")
    assert again.bodies() == [b"other 2", b"other 3"]
    await again.wait(11)
    assert sorted(each.body for each in again.stored(RETRY)) == [b"1", b"other 2", b"other 3"]


async def test_a_classic_file_does_not_say_done_of_what_is_not_on_the_disk_yet(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(b"1")
    world.store.sync_log()
    world.receive(invisible_ms=1000)
    world.tables.save()
    await world.wait(1.1)
    assert len(world.stored(RETRY)) == 1
    assert not world.table.may_save
    world.tables.save()
    again = PopWorld(world.disk.crashed(), is_fenced=False, begins=False)
    again.open()
    assert again.table.live.invisible_count == 1


async def test_a_classic_master_that_stops_knows_all_that_was_done(
    autojump_clock: MockClock,
) -> None:
    """Also if it has put a message again just before, and nobody has flushed the log since."""
    world = PopWorld(is_fenced=False)
    world.put(b"1", b"2")
    done, _ = handles(world.receive(invisible_ms=1000))
    world.tables.save()
    assert world.ack(done) == [True]
    await world.wait(1.1)
    world.pop.close()
    world.tables.save()
    again = PopWorld(world.disk.crashed(), is_fenced=False, begins=False)
    again.open()
    assert (again.state(), again.offset()) == (world.state(), 2)
    await again.wait(11)
    assert [each.body for each in again.stored(RETRY)] == [b"2"]


async def test_an_acknowledgement_that_could_not_be_written_is_no_success(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that puts messages again writes what is gathered: it may be what fails."""
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(1, invisible_ms=1000)
    (handle,) = handles(world.receive(1, invisible_ms=60_000))
    await trio.sleep(1.1)
    answers: list[list[bool] | RequestError] = []
    world.pop.ack([handle], answers.append)
    writer = world.journal_tables.journal.writer
    assert writer is not None

    def refuse(record: object) -> None:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", refuse)
        world.pop.work(trio.current_time())
    world.confirm()
    assert world.pop.is_held(handle)
    (answer,) = answers
    assert isinstance(answer, RequestError)


@pytest.mark.parametrize("ends_before_it_is_written", [True, False])
async def test_a_message_comes_again_once_though_its_record_could_not_be_written_at_first(
    *, ends_before_it_is_written: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for the message, and no room for a new file that the record needs."""
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(1, invisible_ms=1000)
    await trio.sleep(1.1)
    writer = world.journal_tables.journal.writer
    assert writer is not None
    real = writer.write

    def write(record: msgspec.Struct) -> None:
        if isinstance(record, DeliveriesChanged):
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")
        real(record)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", write)
        world.work()
    world.confirm()
    if not ends_before_it_is_written:
        rest = handles(world.receive()) + handles(world.receive())
        assert {each.topic for each in rest} == {TOPIC, RETRY}
        assert world.ack(*rest) == [True, True]
        assert world.confirmed_state() == world.state()
    after = world.successor()
    for each in (world, after):
        await each.wait(5)
        assert [message.body for message in each.stored(RETRY)] == [b"1"]


async def test_a_log_that_is_cut_between_two_records_of_much_has_what_was_put_again_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is gathered when a time is over does not fit into one record with what is put then."""
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(1, invisible_ms=1000)
    acked = handles(world.receive(1, invisible_ms=60_000))
    await trio.sleep(1.1)
    world.pop.ack(acked, lambda _: None)
    writer = world.journal_tables.journal.writer
    assert writer is not None
    real, ends = writer.write, list[int]()

    def write(record: msgspec.Struct) -> None:
        real(record)
        ends.append(world.store.max_physical_offset)

    monkeypatch.setattr(writer, "write", write)
    writer.record_bytes_max = 1_000
    world.work()
    world.confirm()
    assert len(ends) > 1
    for end in ends:
        after = world.successor(end)
        await after.wait(5)
        assert [message.body for message in after.stored(RETRY)] == [b"1"]


async def test_a_snapshot_is_not_before_the_record_of_what_was_put_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next master looks for what was put without a record after the last one, or a snapshot."""
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(1, invisible_ms=1000)
    await trio.sleep(1.1)
    writer = world.journal_tables.journal.writer
    assert writer is not None
    real = writer.write

    def write(record: msgspec.Struct) -> None:
        if isinstance(record, DeliveriesChanged):
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")
        real(record)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", write)
        world.work()
        with pytest.raises(RequestError):
            writer.write_snapshot()
    writer.write_snapshot()
    log_end = world.store.max_physical_offset
    world.confirm()
    after = world.successor(log_end)
    await after.wait(5)
    assert [message.body for message in after.stored(RETRY)] == [b"1"]


async def test_a_classic_group_is_not_moved_on_before_what_comes_again_is_on_the_disk(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(b"1")
    world.store.sync_log()
    world.receive(invisible_ms=1000)
    await world.wait(1.1)
    await world.wait(1)
    assert (len(world.stored(RETRY)), world.offset()) == (1, 0)
    world.store.sync_log()
    await world.wait(1)
    assert world.offset() == 1


async def test_an_offset_that_an_operator_set_is_not_moved_by_what_was_done_before(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    received = handles(world.receive())
    world.pop.ack(received[:2], lambda _: None)  # the group is to be moved to 2
    world.pop.reset(GROUP, TOPIC, 0, 0)
    world.tables.commit(GROUP, TOPIC, 0, 0)
    world.work()  # before anything of that is confirmed
    world.confirm()
    await world.wait(1)
    assert world.offset() == 0
    assert world.bodies() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_one_that_waits_gets_what_comes_after_many_messages_that_its_filter_does_not_want(
    *, is_fenced: bool, autojump_clock: MockClock
) -> None:
    """One read looks at 800 of them; nobody sends another message that would wake it."""
    world = PopWorld(is_fenced=is_fenced)
    world.put(*[b"other"] * 2_000, properties=b"TAGS\x01a\x02")
    world.put(b"wanted", properties=b"TAGS\x01b\x02")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.pop.run, world.confirm)
        answers = world.begin(tags_codes=frozenset({ord("b")}), deadline=trio.current_time() + 5)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    (answer,) = answers
    assert isinstance(answer, Received)
    assert [each.body for each in messages(answer)] == [b"wanted"]
    assert answer.pop_time_ms == world.now_ms()


async def test_one_that_waits_is_not_looked_at_again_where_nothing_has_moved_on(
    autojump_clock: MockClock,
) -> None:
    """There is more to be had, but not now: looking would never end."""
    world = PopWorld()
    world.put(b"1", b"2")
    at = world.place(0)
    world.store.commit_log.damage.note(at, at + 1, "a test")
    world.begin(deadline=trio.current_time() + 5)
    assert (world.pop.receiving.count, len(world.pop.receiving.ready)) == (1, 0)


async def test_one_that_waits_gets_what_comes_again_once_its_queue_is_not_full_any_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(invisible_ms=1000)
    await world.wait(1.1)
    for module in ("pop_service", "taking"):
        monkeypatch.setattr(f"node.receive.{module}.INVISIBLE_PER_QUEUE_MAX", 1)
    first = world.receive(1)
    answers = world.begin(deadline=trio.current_time() + 5)
    world.work()
    assert not answers
    assert world.ack(*handles(first)) == [True]
    world.work()
    world.confirm()
    (answer,) = answers
    assert isinstance(answer, Received)
    assert [each.body for each in messages(first) + messages(answer)] == [b"1", b"2"]


async def test_what_a_drained_client_gets_is_not_lost_with_what_the_task_writes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken outside of a round, and the task is the first that writes."""
    world, slow = PopWorld(), SlowClient()
    answers: list[Received | RequestError] = []
    world.put(b"1")
    assert world.ack(*handles(world.receive(invisible_ms=1000))) == [True]
    world.pop.receive(world.request(deadline=trio.current_time() + 50), answers.append, slow)
    world.put(b"2")
    world.work()
    await trio.sleep(1.1)
    writer = world.journal_tables.journal.writer
    assert writer is not None
    real, refused = writer.write, list[msgspec.Struct]()

    def write(record: msgspec.Struct) -> None:
        if not refused:
            refused.append(record)
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")
        real(record)

    monkeypatch.setattr(writer, "write", write)
    async with trio.open_nursery() as nursery:
        slow.is_congested = False
        (call,) = slow.calls
        call()
        nursery.start_soon(world.pop.run, world.confirm)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(refused) == 1
    (answer,) = answers
    assert isinstance(answer, RequestError)
    assert world.bodies() == [b"2"]


async def test_an_acknowledgement_that_is_gathered_at_a_stop_is_answered(
    autojump_clock: MockClock,
) -> None:
    """Else its connection, which is owed the answer, keeps the node from stopping."""
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive())
    answers: list[list[bool] | RequestError] = []
    world.pop.ack([handle], answers.append)
    world.tables.close("it stops")
    assert [type(each) for each in answers] == [RequestError]
    world.confirm()
    assert len(answers) == 1


async def test_nothing_is_handed_out_where_it_could_not_be_written_any_more(
    autojump_clock: MockClock,
) -> None:
    """A node that stops lets what is in flight finish: the next master would not know of it."""
    world = PopWorld()
    answers = world.begin(deadline=trio.current_time() + 50)
    world.tables.close("it stops")
    world.put(b"1")
    world.work()
    world.confirm()
    assert [type(each) for each in answers] == [RequestError]
    assert world.successor().bodies() == [b"1"]


async def test_one_that_waits_gets_what_another_got_whose_record_could_not_be_written(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld()
    first = world.begin(deadline=trio.current_time() + 50)
    second = world.begin(deadline=trio.current_time() + 50)
    writer = world.journal_tables.journal.writer
    assert writer is not None

    def refuse(record: object) -> None:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no room")

    world.put(b"1")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", refuse)
        world.work()
    assert ([type(each) for each in first], second) == ([RequestError], [])
    world.work()
    world.confirm()
    (answer,) = second
    assert isinstance(answer, Received)
    assert [each.body for each in messages(answer)] == [b"1"]


@pytest.mark.parametrize("others", [0, 3])
async def test_one_that_waits_gets_what_there_is_once_the_broker_is_not_full_any_more(
    others: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another queue and group than the message that makes room; some have given up before."""
    world = PopWorld(queues=2)
    world.put(b"1")
    first = world.receive(1)
    monkeypatch.setattr("node.receive.taking.INVISIBLE_MAX", 1)
    for number in range(others):
        world.put(b"x", topic=f"O{number}")
        assert world.bodies(group="h", topic=f"O{number}", queue_count=1) == []
    world.put(b"2", queue_id=1)
    deadline = trio.current_time() + 50
    answers = world.begin(deadline=deadline, group="other", queue_id=1, invisible_ms=100_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.pop.run, world.confirm)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        assert world.ack(*handles(first)) == [True]
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    (answer,) = answers
    assert isinstance(answer, Received)
    assert [each.body for each in messages(answer)] == [b"2"]
