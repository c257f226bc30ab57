"""Reading from brokers that lag, refuse, hang up, fall silent, or send what makes no sense."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from tandem.client.errors import BrokerError, RouteNotFoundError
from tandem.spark.errors import DataLossError, LossCause, SparkSourceError
from tandem.spark.live.chunks import AnswerError, AnswerFault, chunks, records_of
from tandem.spark.live.puller import RangePuller
from tandem.spark.live.ranges import QueueRange
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.message import encode_record
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.support.logged import logged
from tests.tandem.client.fake_broker import (
    MASTER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    answer_to,
    route_of,
)
from tests.tandem.spark.live.live_world import TOPIC, LiveWorld, live_world, pull_of, queue

PULL = RequestCode.PULL_MESSAGE.value


@pytest.fixture
def world() -> Iterator[LiveWorld]:
    with live_world() as made:
        made.fill(0, 200)
        made.fill(1, 70)
        yield made


def puller(world: LiveWorld, *ranges: QueueRange, **given: bool | float) -> RangePuller:
    return RangePuller(
        world.core(),
        "readers",
        ranges or (QueueRange(queue(0), 0, 200), QueueRange(queue(1), 5, 70)),
        opener=world.sockets.open,
        sleep=world.time.sleep,
        **given,  # type: ignore[arg-type]
    )


def read(reader: RangePuller) -> list[tuple[int, int]]:
    """Return queue id and offset of each record."""
    found: list[tuple[int, int]] = []
    for chunk in chunks(reader.pieces(), chunk_bytes=5000):
        part = records_of(chunk, reader.ranges[chunk.place])
        records = part.records
        found += zip(records.queue_id.tolist(), records.queue_offset.tolist(), strict=True)
    return found


EVERYTHING = [(0, offset) for offset in range(200)] + [(1, offset) for offset in range(5, 70)]


def test_ranges_are_read_in_order(world: LiveWorld) -> None:
    assert read(puller(world)) == EVERYTHING
    assert len(world.sockets.opened) == 2  # one to the name server


def test_many_pulls_leave_before_the_first_answer(world: LiveWorld) -> None:
    pieces = puller(world).pieces()
    next(pieces)
    assert world.master.codes().count(PULL) == 10


def test_a_slave_is_asked_first_where_that_is_wanted(world: LiveWorld) -> None:
    assert read(puller(world, from_slave=True)) == EVERYTHING
    assert PULL not in world.master.codes()


def test_what_a_slave_lacks_comes_from_the_master(world: LiveWorld) -> None:
    world.slave.queues = {(TOPIC, 0): world.master.queues[TOPIC, 0][:50]}
    assert read(puller(world, from_slave=True)) == EVERYTHING
    assert PULL in world.master.codes()
    assert PULL in world.slave.codes()


def test_what_a_slave_has_deleted_is_not_lost(world: LiveWorld) -> None:
    def deleted(request: RemotingCommand) -> RemotingCommand:
        ext = PullMessageResponseHeader(0, 150, 150, 200)
        return answer_to(request, ResponseCode.PULL_OFFSET_MOVED, ext)

    world.slave.handlers[PULL] = deleted
    assert read(puller(world, from_slave=True)) == EVERYTHING


def test_another_master_goes_on_where_the_last_one_ended(world: LiveWorld) -> None:
    """The master hangs up in the middle; the route names another a second later."""
    serve = world.master.handlers[PULL]
    left = [3]

    def hang_up(request: RemotingCommand) -> RemotingCommand | None:
        left[0] -= 1
        if left[0] < 0:
            del world.sockets.brokers[MASTER]
            world.name_server.routes[TOPIC] = route_of(("broker-a", {1: SLAVE}))
            for opened in world.sockets.opened:
                if opened.broker is world.master:
                    opened.broker = None
            return None
        return serve(request)

    def no_more(request: RemotingCommand) -> RemotingCommand | None:
        if world.time.now < 1003:
            return answer_to(request, ResponseCode.SYSTEM_ERROR)
        return serve(request)

    world.master.handlers[PULL] = hang_up
    world.slave.handlers[PULL] = no_more
    assert read(puller(world)) == EVERYTHING
    assert world.time.now >= 1003


def test_a_master_at_a_new_address_is_looked_for(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {0: MASTER}))
    serve = world.master.handlers[PULL]

    def move(request: RemotingCommand) -> RemotingCommand | None:
        other = FakeBroker()
        other.queues = world.master.queues
        world.sockets.brokers[OTHER_MASTER] = other
        world.name_server.routes[TOPIC] = route_of(("broker-a", {0: OTHER_MASTER}))
        world.master.handlers[PULL] = lambda _: None
        return serve(request)

    world.master.handlers[PULL] = move
    assert read(puller(world, retry_seconds=10.0)) == EVERYTHING


def test_a_silent_master_is_left_for_a_slave(world: LiveWorld) -> None:
    world.master.handlers[PULL] = lambda _: None
    assert read(puller(world)) == EVERYTHING


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE],
)
def test_a_refusal_that_passes_is_waited_for(world: LiveWorld, code: ResponseCode) -> None:
    serve = world.master.handlers[PULL]
    world.master.handlers[PULL] = lambda request: (
        answer_to(request, code) if world.time.now < 1005 else serve(request)
    )
    assert read(puller(world)) == EVERYTHING


def test_a_refusal_for_good_is_said(world: LiveWorld) -> None:
    world.master.handlers[PULL] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION, remark="not you"
    )
    with pytest.raises(SparkSourceError) as caught:
        read(puller(world))
    assert isinstance(caught.value.__cause__, BrokerError)
    assert caught.value.__cause__.code == ResponseCode.NO_PERMISSION


def test_nobody_in_time_is_said_with_the_queue_and_the_option(world: LiveWorld) -> None:
    del world.sockets.brokers[MASTER], world.sockets.brokers[SLAVE]
    with pytest.raises(SparkSourceError, match=r"retryTimeoutMs.*queue 0 of topic 'orders'"):
        read(puller(world, retry_seconds=30.0))
    assert 1030 <= world.time.now < 1035


def test_a_topic_that_is_unknown_ends_in_words(world: LiveWorld) -> None:
    world.name_server.routes.clear()
    with pytest.raises(SparkSourceError) as caught:
        read(puller(world, retry_seconds=5.0))
    assert isinstance(caught.value.__cause__, RouteNotFoundError)
    assert not caught.value.__cause__.may_pass


class TestLoss:
    def lose(self, world: LiveWorld, code: ResponseCode, lowest: int) -> None:
        serve = world.master.handlers[PULL]

        def answer(request: RemotingCommand) -> RemotingCommand | None:
            header = pull_of(request)
            if header.queue_id == 0 and header.queue_offset < lowest:
                ext = PullMessageResponseHeader(0, lowest, lowest, 200)
                return answer_to(request, code, ext)
            return serve(request)

        world.master.handlers[PULL] = answer

    @pytest.mark.parametrize(
        "code", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY]
    )
    def test_what_the_master_has_deleted_is_an_error(
        self, world: LiveWorld, code: ResponseCode
    ) -> None:
        self.lose(world, code, 40)
        with pytest.raises(DataLossError, match="0 to 32 of queue 0") as caught:
            read(puller(world))
        assert (caught.value.cause, caught.value.start) == (LossCause.DELETED, 0)

    @pytest.mark.parametrize(
        "code", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY]
    )
    def test_or_it_is_passed_over(self, world: LiveWorld, code: ResponseCode) -> None:
        self.lose(world, code, 40)
        reader = puller(world, fail_on_data_loss=False)
        assert read(reader) == [each for each in EVERYTHING if each[0] or each[1] >= 40]
        assert sum(loss.end - loss.start for loss in reader.losses) == 40

    def test_a_queue_that_ends_early_is_waited_for_and_then_lost(self, world: LiveWorld) -> None:
        del world.master.queues[TOPIC, 0][150:]
        reader = puller(world, fail_on_data_loss=False)
        assert read(reader) == [each for each in EVERYTHING if each[0] or each[1] < 150]
        assert {loss.cause for loss in reader.losses} == {LossCause.CUT}
        assert 1015 <= world.time.now < 1020

    def test_a_queue_that_ends_early_for_a_moment_is_whole(self, world: LiveWorld) -> None:
        whole = world.master.queues
        short = {(TOPIC, 0): whole[TOPIC, 0][:150], (TOPIC, 1): whole[TOPIC, 1]}
        serve = world.master.handlers[PULL]

        def answer(request: RemotingCommand) -> RemotingCommand | None:
            world.master.queues = whole if world.time.now > 1010 else short
            return serve(request)

        world.master.handlers[PULL] = answer
        assert read(puller(world)) == EVERYTHING

    def test_a_topic_that_was_deleted_is_lost(self, world: LiveWorld) -> None:
        world.master.handlers[PULL] = lambda request: answer_to(
            request, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic here"
        )
        with pytest.raises(DataLossError) as caught:
            read(puller(world))
        assert caught.value.cause is LossCause.GONE

    def test_so_is_one_that_name_servers_know_no_more(self, world: LiveWorld) -> None:
        world.name_server.routes.clear()
        with pytest.raises(DataLossError) as caught:
            read(puller(world))
        assert (caught.value.cause, caught.value.start) == (LossCause.GONE, 0)
        assert 1015 <= world.time.now < 1025

    def test_or_it_is_passed_over_and_the_next_topic_is_read(self, world: LiveWorld) -> None:
        world.fill(0, 50, topic="others")
        world.name_server.routes["others"] = world.name_server.routes.pop(TOPIC)
        others = QueueRange(queue(0, topic="others"), 0, 50)
        reader = puller(
            world,
            *(QueueRange(queue(0), 0, 200), others),
            fail_on_data_loss=False,
        )
        assert [offset for _, offset in read(reader)] == list(range(50))
        assert sum(loss.end - loss.start for loss in reader.losses) == 200

    def test_what_is_lost_is_a_line_for_each_range(
        self, world: LiveWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        """However many pulls it takes, which is one for 32 messages."""
        for queue_id in (0, 1):
            del world.master.queues[TOPIC, queue_id][10:]
        reader = puller(world, fail_on_data_loss=False)
        read(reader)
        assert len(reader.losses) > 2
        lines = logged(caplog, "tandem.spark.live.data_loss")
        assert [(loss.start, loss.end) for (loss,) in lines] == [(10, 200), (10, 70)]  # type: ignore[attr-defined]


class TestDamage:
    def damage(self, broker: FakeBroker, *numbers: int) -> None:
        """Have a broker answer as one where these messages of queue 0 are damaged."""
        serve = broker.handlers[PULL]

        def answer(request: RemotingCommand) -> RemotingCommand | None:
            pull = pull_of(request)
            if pull.queue_id != 0 or pull.queue_offset not in numbers:
                bad = [each for each in numbers if each > pull.queue_offset]
                if pull.queue_id == 0 and bad:
                    most = min(pull.max_msg_nums, min(bad) - pull.queue_offset)
                    short = msgspec.structs.replace(pull, max_msg_nums=most)
                    request = msgspec.structs.replace(request, ext=short)
                return serve(request)
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            ext = DamagedMessageHeader(pull.queue_offset, 1000)
            return answer_to(request, code, ext, b"", "message 60 of queue 0 is damaged")

        broker.handlers[PULL] = answer

    def test_a_message_that_is_damaged_at_the_master_comes_from_another_node(
        self, world: LiveWorld
    ) -> None:
        self.damage(world.master, 60)
        began = world.time.now
        assert read(puller(world)) == EVERYTHING
        assert world.time.now - began < 5

    def test_a_message_that_is_damaged_everywhere_is_an_error_that_names_it(
        self, world: LiveWorld
    ) -> None:
        self.damage(world.master, 60)
        self.damage(world.slave, 60)
        with pytest.raises(DataLossError) as caught:
            read(puller(world))
        assert (caught.value.cause, caught.value.start) == (LossCause.DAMAGED, 60)

    def test_or_it_is_passed_over(self, world: LiveWorld) -> None:
        self.damage(world.master, 60, 61)
        self.damage(world.slave, 60, 61)
        reader = puller(world, fail_on_data_loss=False)
        assert read(reader) == [each for each in EVERYTHING if each not in {(0, 60), (0, 61)}]
        assert [(loss.start, loss.end) for loss in reader.losses] == [(60, 61), (61, 62)]


class Liar:
    """A broker whose answers to pulls are right, or are not."""

    def __init__(self, broker: FakeBroker, seed: int) -> None:
        self.chance = random.Random(seed)
        self.serve = broker.handlers[PULL]

    def answer(self, request: RemotingCommand) -> RemotingCommand | None:
        chance = self.chance
        right = self.serve(request)
        assert right is not None
        numbers = [chance.choice((-1, 0, 31, 32, 2**31, 2**62)) for _ in range(4)]
        body = right.body
        at = chance.randrange(max(1, len(body)))
        lies: list[dict[str, object] | None] = [
            {"ext": PullMessageResponseHeader(*numbers)},
            {"ext": {"nextBeginOffset": "9" * 30}},
            {"code": chance.randrange(300)},
            {"body": body[:at]},
            {"body": body[:at] + chance.randbytes(1) + body[at + 1 :]},
            {"opaque": request.opaque + 1},
            None,
        ]
        lie = chance.choice([*lies, *[{}] * 17])
        return None if lie is None else msgspec.structs.replace(right, **lie)


@pytest.mark.parametrize("seed", range(150))
def test_a_broker_that_lies_is_caught_or_put_up_with(world: LiveWorld, seed: int) -> None:
    """What comes out is right, or nothing comes out but an error in words."""
    liar = Liar(world.master, seed)
    for broker in (world.master, world.slave):
        broker.handlers[PULL] = liar.answer
    try:
        found = read(puller(world, retry_seconds=20.0))
    except SparkSourceError:
        return
    assert found == EVERYTHING


@pytest.mark.parametrize("queue_id", [1, 7])
def test_records_of_another_queue_are_refused(world: LiveWorld, queue_id: int) -> None:
    def answer(request: RemotingCommand) -> RemotingCommand:
        header = pull_of(request)
        body = b"".join(
            encode_record(msgspec.structs.replace(each, queue_id=queue_id))
            for each in world.master.queues[TOPIC, 0][header.queue_offset :][:32]
        )
        ext = PullMessageResponseHeader(0, min(header.queue_offset + 32, 200), 0, 200)
        return answer_to(request, ResponseCode.SUCCESS, ext, body)

    world.master.handlers[PULL] = answer
    with pytest.raises(AnswerError) as caught:
        read(puller(world, QueueRange(queue(0), 0, 200)))
    assert caught.value.fault is AnswerFault.OTHER_QUEUE


def test_a_master_elsewhere_is_found(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {0: OTHER_MASTER}))
    other = FakeBroker()
    other.queues = world.master.queues
    world.sockets.brokers[OTHER_MASTER] = other
    assert read(puller(world)) == EVERYTHING
    assert PULL not in world.master.codes()
