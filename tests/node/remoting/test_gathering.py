"""What comes on several connections at once ends as if it had come alone, one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ha.results import Refusal
from node.handlers.send_runs import SendRunHandler, send_runs
from node.handlers.stored_answer import answer_parts
from node.remoting import connection as connections_module
from node.remoting.connection import OWED_ANSWERS_MAX, Connection
from node.remoting.gathering import ALONE_MAX, PART_BYTES_MAX, Gathering, Part, TakeTogether
from node.remoting.server import serve_requests
from node.remoting.turns import PASS_SECONDS, Turns
from store import PutMessageStatus
from store.log.log_end import TORN_BYTES_MIN
from store.machine.network import ConnectionLost
from tandem.wire import native
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host, decode_messages
from tandem.wire.read_together import ReadTogether
from tandem.wire.response_code import ResponseCode
from tandem.wire.send_run import SENDS_MAX, SendRuns
from tests.node.doubles import FakeStream
from tests.node.handlers.send_node import REQUESTS, UNUSUAL, Node, frame
from tests.node.handlers.send_requests import Waiters, as_in_cpp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trio.testing import MockClock

    from store.machine.network import Member, Take, TakeRest

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

Round = list[tuple[int, bytes]]
"""What comes on which connection, each of them once."""

CROWD: Final = 4


class Reads:
    """Stands for the loop that reads sockets."""

    def __init__(self) -> None:
        self.reads_several = True
        self.passes = 0
        self.asked_for_a_pass = 0

    def let_trio_go_on(self) -> None:
        self.asked_for_a_pass += 1


@pytest.fixture(params=["joined", "kept"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are read together, or one by one and kept to the end of the round."""
    if request.param == "joined":
        # No socket has this number: each answer is sent by its stream.
        monkeypatch.setattr(RoundStream, "plain_fd", 1 << 20)
        monkeypatch.setattr(connections_module, "many_sockets", lambda: None)


class RoundStream(FakeStream):
    """A stream that is read in rounds, by the test.

    Attributes:
        member: With whom it is read together, if it is; `take_rest` takes what they leave.
    """

    plain_fd = -1

    def __init__(self, peer: Host) -> None:
        super().__init__(peer)
        self.take: Take | None = None
        self.member: Member | None = None
        self.take_rest: TakeRest | None = None
        self._outcome: bool | Exception | None = None
        self._over = trio.Event()

    async def receive_together(
        self, bytes_max: int, take: Take, member: Member, take_rest: TakeRest
    ) -> bool:
        self.member, self.take_rest = member, take_rest
        return await self.receive_while(bytes_max, take)

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        self.take, self._outcome, self._over = take, None, trio.Event()
        await self._over.wait()
        outcome = self._result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _result(self) -> bool | Exception:
        assert self._outcome is not None
        return self._outcome

    def wants_no_more(self) -> None:
        self._finish(outcome=True)

    def end(self) -> None:
        self._finish(outcome=False)

    def _finish(self, outcome: bool | Exception) -> None:  # noqa: FBT001
        self.take, self._outcome = None, outcome
        self._over.set()

    def call(self, taking: Callable[[], bool | Callable[[], bool]]) -> Callable[[], bool] | None:
        """Call what may want no more, may raise, or may go on later; return the latter."""
        try:
            taken = taking()
        except WireError as error:
            self._finish(error)
            return None
        if not isinstance(taken, bool):
            return taken
        if not taken:
            self.wants_no_more()
        return None


class Crowd:
    """A broker and some connections to it. It gathers, or handles all requests one by one.

    Attributes:
        told: What was wrong with what it has received, by connection.
        split: For each round, of each part that was left to its end, how much was taken together.
    """

    def __init__(
        self, *, gathers: bool, waiters: Waiters | None = None, count: int = CROWD
    ) -> None:
        self.node = node = Node(waiters=waiters)
        self.reads, self.turns = Reads(), Turns()
        store, broker = node.broker.store, node.broker
        runs = send_runs(store, suffix=broker.stamp.suffix, host=broker.host)
        taker = SendRunHandler(store, broker.tables, node.replication, node.send, runs)
        assert taker.take_together is not None
        self._take_together = taker.take_together
        self.split: list[dict[int, int]] = []
        self.rounds = 0
        if gathers:
            node.dispatcher.take_together = self._take
        else:
            node.dispatcher.take_run = None
        self.gathering = Gathering(self.reads, self.turns, self._end_round) if gathers else None
        self.streams = [RoundStream(Host("10.0.0.50", 1000 + n)) for n in range(count)]
        self.connections = [Connection(stream, broker.outbox) for stream in self.streams]
        self.told = [""] * count
        for topic in ("T", "U"):
            for queue_id in range(4):
                node.put(topic, queue_id)

    def _take(self, parts: list[Part], came: ReadTogether) -> bool:
        before = list(came.starts)
        is_some = self._take_together(parts, came)
        for part, start, end in zip(parts, before, came.starts, strict=True):
            self.split[-1][self.connections.index(part.connection)] = end - start
        return is_some

    def _end_round(self) -> None:
        self.rounds += 1
        self.node.end_round()

    async def _serve(self, number: int) -> None:
        try:
            await serve_requests(
                self.connections[number],
                self.node.dispatcher,
                self._end_round,
                FrameBuffer(),
                self.turns,
                self.gathering,
            )
        except WireError as error:
            self.told[number] = str(error)

    async def play(self, rounds: list[Round]) -> None:
        """Have these come, and then the end of all connections."""
        async with trio.open_nursery() as nursery:
            for number in range(len(self.streams)):
                nursery.start_soon(self._serve, number)
            await trio.testing.wait_all_tasks_blocked()
            for arriving in rounds:
                await self._round(arriving)
            for stream in self.streams:
                if stream.take is not None:
                    stream.end()

    async def _round(self, arriving: Round) -> None:
        self.split.append({})
        self.reads.passes += 1
        self.reads.reads_several = len(arriving) > 1
        later: list[tuple[RoundStream, Callable[[], bool]]] = []
        joined, arriving = self._joined(arriving)
        if len(joined) > 1:
            self._take_joined(joined)
        else:
            arriving = joined + arriving
        for number, chunk in arriving:
            stream = self.streams[number]
            if stream.take is not None:
                call = stream.call(partial(stream.take, chunk))
                if call is not None:
                    self.split[-1].setdefault(number, 0)
                    later.append((stream, call))
        for stream, call in later:
            stream.call(call)
        await trio.testing.wait_all_tasks_blocked()

    def _joined(self, arriving: Round) -> tuple[Round, Round]:
        """Part those that are read together from the others."""
        joined: Round = []
        others: Round = []
        for number, chunk in arriving:
            stream = self.streams[number]
            joins = stream.take is not None and stream.member is not None and stream.member.joins
            (joined if joins else others).append((number, chunk))
        return joined, others

    def _take_joined(self, joined: Round) -> None:
        """Do what `ReadLoop` does."""
        came = ReadTogether.of([chunk for _, chunk in joined])
        members = [self.streams[number].member for number, _ in joined]
        for number, _ in joined:
            self.split[-1][number] = 0
        assert self.gathering is not None
        asked = self.gathering.take(cast("list[Part]", members), came)
        for at, (number, _) in enumerate(joined):
            rest, stream = came.rest(at), self.streams[number]
            if rest or at in asked:
                assert stream.take_rest is not None
                stream.call(partial(stream.take_rest, rest))

    def state(self) -> object:
        """All that could have ended otherwise, but what is said of one of the connections alone."""
        return (
            self.node.state(),
            [bytes(stream.sent) for stream in self.streams],
            [connection.owed_count for connection in self.connections],
            [connection.has_asked for connection in self.connections],
            self.told,
        )

    def answers(self, number: int) -> list[tuple[int, int]]:
        return [(each.opaque, each.code) for each in self.streams[number].take_frames()]


def as_split(
    rounds: list[Round], split: list[dict[int, int]], *, is_alone_first: bool
) -> list[Round]:
    """Return the same in the order in which it was handled, each part in a round of its own."""
    in_turn: list[Round] = []
    for all_arriving, taken in zip(rounds, split, strict=True):
        alone: list[Round] = [[(n, chunk)] for n, chunk in all_arriving if n not in taken]
        arriving = [(n, chunk) for n, chunk in all_arriving if n in taken]
        together: list[Round] = [
            [(n, chunk[: taken[n]])] for n, chunk in arriving if taken.get(n)
        ] + [[(n, chunk[taken.get(n, 0) :])] for n, chunk in arriving if chunk[taken.get(n, 0) :]]
        in_turn += alone + together if is_alone_first else together + alone
    return in_turn


async def alike(rounds: list[Round]) -> Crowd:
    """Have these come to both brokers; return the one that gathers."""
    crowd, other = Crowd(gathers=True), Crowd(gathers=False)
    await crowd.play(rounds)
    is_kept = RoundStream.plain_fd < 0
    await other.play(as_split(rounds, crowd.split, is_alone_first=is_kept))
    assert crowd.state() == other.state()
    return crowd


async def test_one_request_on_each_connection_is_one_run_announced_and_sent_once(
    autojump_clock: MockClock,
) -> None:
    crowd = await alike([[(n, frame(n, b"%d" % n, queue_id=n % 3)) for n in range(CROWD)]])
    assert crowd.node.alone == []
    assert crowd.rounds == 1
    records = list(decode_messages(memoryview(crowd.node.log())))[-CROWD:]
    assert [(record.body, record.born_host.port) for record in records] == [
        (b"%d" % n, 1000 + n) for n in range(CROWD)
    ]
    assert [crowd.answers(n) for n in range(CROWD)] == [[(n, 0)] for n in range(CROWD)]


async def test_a_connection_with_several_requests_has_all_its_answers_in_order(
    autojump_clock: MockClock,
) -> None:
    parts = [frame(n * 10) + frame(n * 10 + 1) * (n % 2) for n in range(CROWD)]
    crowd = await alike([list(enumerate(parts))])
    assert crowd.node.alone == []
    assert crowd.answers(2) == [(20, 0)]
    assert crowd.answers(3) == [(30, 0), (31, 0)]


@pytest.mark.parametrize("what", UNUSUAL)
async def test_what_is_not_usual_is_handled_alone_and_in_its_order(
    what: str, autojump_clock: MockClock
) -> None:
    unusual = UNUSUAL[what]
    crowd = await alike(
        [[(0, frame(1)), (1, frame(2) + unusual + frame(3)), (2, unusual), (3, frame(4))]]
    )
    opaques = [opaque for opaque, _ in crowd.answers(1)]
    assert opaques[0] == 2
    assert opaques[-1] == 3
    assert crowd.answers(0) == [(1, 0)]
    assert crowd.answers(3) == [(4, 0)]


async def test_half_a_request_is_not_read_on_in_what_another_connection_has_sent(
    autojump_clock: MockClock,
) -> None:
    """Else one client would speak for another one, wherever their reads meet."""
    whole = frame(1, b"mine")
    for cut in (1, 4, 8, 9, 60, 200, len(whole) - 4, len(whole) - 1):
        crowd = Crowd(gathers=True)
        rest, evil = whole[cut:], frame(9, b"evil")
        await crowd.play([[(0, whole[:cut]), (1, rest + evil), (2, evil)], [(0, rest)]])
        assert crowd.answers(0) == [(1, 0)]
        assert crowd.answers(2) == [(9, 0)]
        records = list(decode_messages(memoryview(crowd.node.log())))
        assert [r.born_host.port for r in records if r.body == b"mine"] == [1000]


CHUNKS: Final = st.one_of(
    st.lists(st.just(frame(5)) | REQUESTS | REQUESTS.map(as_in_cpp), max_size=4).map(b"".join),
    st.tuples(REQUESTS | st.just(frame(6)), st.integers(1, 400)).map(lambda cut: cut[0][: cut[1]]),
    st.tuples(REQUESTS | st.just(frame(6)), st.integers(1, 400)).map(lambda cut: cut[0][cut[1] :]),
)
ROUNDS: Final = st.lists(
    st.dictionaries(st.integers(0, CROWD - 1), CHUNKS.filter(bool), min_size=1).map(
        lambda parts: list(parts.items())
    ),
    max_size=6,
)


@pytest.mark.slow
@given(ROUNDS)
def test_whatever_comes_together_ends_as_if_it_had_come_one_by_one(rounds: list[Round]) -> None:
    trio.run(partial(alike, rounds), clock=trio.testing.MockClock())


async def test_a_run_of_several_is_answered_when_its_last_message_is_where_it_is_to_be(
    autojump_clock: MockClock,
) -> None:
    waiters = Waiters()
    crowd = Crowd(gathers=True, waiters=waiters)
    await crowd.play([[(n, frame(n) * (1 + n % 2)) for n in range(CROWD)]])
    ((end, _, _),) = waiters.waiting
    assert end == crowd.node.broker.store.max_physical_offset
    assert [connection.owed_count for connection in crowd.connections] == [1, 2, 1, 2]
    assert not any(stream.sent for stream in crowd.streams)
    waiters.answer(PutMessageStatus.PUT_OK)
    crowd.node.broker.outbox.flush()
    assert [crowd.answers(n) for n in range(CROWD)] == [
        [(n, 0)] * (1 + n % 2) for n in range(CROWD)
    ]
    assert not any(connection.is_busy for connection in crowd.connections)


async def test_of_a_run_of_several_in_time_is_what_the_slave_has_reached(
    autojump_clock: MockClock,
) -> None:
    waiters = Waiters()
    crowd = Crowd(gathers=True, waiters=waiters)
    before = crowd.node.broker.store.max_physical_offset
    await crowd.play([[(n, frame(n) * 2) for n in range(CROWD)]])
    record_bytes = (crowd.node.broker.store.max_physical_offset - before) // (2 * CROWD)
    waiters.reached = before + 3 * record_bytes
    waiters.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "slow")
    crowd.node.broker.outbox.flush()
    late = ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert [crowd.answers(n) for n in range(CROWD)] == [
        [(0, 0), (0, 0)],
        [(1, 0), (1, late)],
        [(2, late), (2, late)],
        [(3, late), (3, late)],
    ]


async def test_a_connection_that_is_closed_while_its_put_waits_gets_nothing(
    autojump_clock: MockClock,
) -> None:
    waiters = Waiters()
    crowd = Crowd(gathers=True, waiters=waiters)
    await crowd.play([[(n, frame(n)) for n in range(CROWD)]])
    crowd.connections[1].close()
    waiters.answer(PutMessageStatus.PUT_OK)
    crowd.node.broker.outbox.flush()
    assert [crowd.answers(n) for n in range(CROWD)] == [[(0, 0)], [], [(2, 0)], [(3, 0)]]
    assert crowd.node.send.parked.waiting_count == 0


async def test_who_waits_and_who_does_not_are_not_one_run(autojump_clock: MockClock) -> None:
    waiters = Waiters()
    crowd = Crowd(gathers=True, waiters=waiters)
    eager = "UNIQ_KEY\x01K1\x02WAIT\x01false\x02"
    await crowd.play([[(0, frame(0)), (1, frame(1, properties=eager)), (2, frame(2))]])
    assert [crowd.answers(n) for n in range(3)] == [[], [(1, 0)], []]
    waiters.answer(PutMessageStatus.PUT_OK)
    crowd.node.broker.outbox.flush()
    assert [crowd.answers(n) for n in range(3)] == [[(0, 0)], [], [(2, 0)]]


async def test_a_node_that_takes_no_puts_refuses_each(autojump_clock: MockClock) -> None:
    crowd = Crowd(gathers=True)
    before = crowd.node.log()
    crowd.node.replication.refused = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "another is")
    await crowd.play([[(n, frame(n)) for n in range(CROWD)]])
    assert crowd.node.log() == before
    refused = int(ResponseCode.SERVICE_NOT_AVAILABLE)
    assert [crowd.answers(n) for n in range(CROWD)] == [[(n, refused)] for n in range(CROWD)]


async def test_where_somebody_signs_nothing_of_several_connections_is_one_run(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    store, broker = node.broker.store, node.broker
    node.put("T", 1)
    runs = send_runs(store, suffix=broker.stamp.suffix, host=broker.host, are_signed=True)
    taker = SendRunHandler(
        store, broker.tables, node.replication, node.send, runs, lambda _, __: None
    )
    assert taker.take_together is not None
    some = parts(2)
    for part in some:
        part.data = frame(1)
    came = ReadTogether.of([part.data for part in some])
    assert not taker.take_together(some, came)
    assert [part.data for part in some] == [frame(1)] * 2


async def test_a_request_within_the_body_of_a_half_one_is_not_handled(
    autojump_clock: MockClock,
) -> None:
    inner = frame(66, b"evil")
    whole = frame(1, inner)
    cut = whole.index(inner)
    crowd = Crowd(gathers=True)
    await crowd.play([[(0, whole[:cut]), (1, frame(2))], [(0, whole[cut:]), (1, frame(3))]])
    assert crowd.answers(0) == [(1, 0)]


async def test_what_comes_over_ipv6_is_handled_alone(autojump_clock: MockClock) -> None:
    crowd = Crowd(gathers=True)
    crowd.streams[1] = RoundStream(Host("2001:db8::1", 1001))
    crowd.connections[1] = Connection(crowd.streams[1], crowd.node.broker.outbox)
    await crowd.play([[(n, frame(n, b"%d" % n)) for n in range(CROWD)]])
    assert crowd.split[0].keys() == {0, 2, 3}
    records = list(decode_messages(memoryview(crowd.node.log())))[-CROWD:]
    assert {record.body: record.born_host.ip for record in records} == {
        b"%d" % n: "2001:db8::1" if n == 1 else "10.0.0.50" for n in range(CROWD)
    }


async def test_who_is_owed_too_many_answers_is_not_read_on(autojump_clock: MockClock) -> None:
    waiters = Waiters()
    crowd = Crowd(gathers=True, waiters=waiters)
    crowd.connections[0].owed_count = OWED_ANSWERS_MAX - 1
    first = [(n, frame(n)) for n in range(CROWD)]
    async with trio.open_nursery() as nursery:
        for number in range(CROWD):
            nursery.start_soon(crowd._serve, number)
        await trio.testing.wait_all_tasks_blocked()
        await crowd._round(first)
        assert [stream.take is None for stream in crowd.streams] == [True, False, False, False]
        waiters.answer(PutMessageStatus.PUT_OK)
        crowd.node.broker.outbox.flush()
        await trio.testing.wait_all_tasks_blocked()
        assert all(stream.take is not None for stream in crowd.streams)
        nursery.cancel_scope.cancel()


async def test_a_run_that_there_is_no_room_for_is_handled_one_by_one(
    autojump_clock: MockClock,
) -> None:
    crowd = Crowd(gathers=True, waiters=Waiters())
    parked = crowd.node.send.parked
    parked.room = 2
    await crowd.play([[(n, frame(n)) for n in range(CROWD)]])
    assert parked.room == 0
    busy = int(ResponseCode.SYSTEM_BUSY)
    assert [crowd.answers(n) for n in range(CROWD)] == [[], [], [(2, busy)], [(3, busy)]]


# -- the gathering alone -----------------------------------------------------------------------


def parts(count: int) -> list[Part]:
    streams = [FakeStream(Host("10.0.0.9", n)) for n in range(count)]
    node = Node()
    return [Part(Connection(stream, node.broker.outbox), node.dispatcher) for stream in streams]


async def test_what_comes_alone_is_much_or_is_of_others_is_not_gathered(
    autojump_clock: MockClock,
) -> None:
    reads = Reads()
    gathering = Gathering(reads, Turns(), lambda: None)
    one, other = parts(2)
    taken: list[int] = []

    def take(some: list[Part], came: ReadTogether) -> bool:
        taken.append(len(some))
        return True

    reads.reads_several = False
    assert not gathering.add(one, b"x", take)
    reads.reads_several = True
    assert not gathering.add(one, b"x", None)
    assert not gathering.add(one, bytes(PART_BYTES_MAX + 1), take)
    assert gathering.add(one, bytes(PART_BYTES_MAX), take)
    assert not gathering.add(other, b"x", lambda _, __: True)  # of another port
    gathering.end()
    assert taken == []  # one alone is handled as ever
    assert one.data == bytes(PART_BYTES_MAX)
    assert gathering.add(one, b"x", take)
    assert gathering.add(other, b"y", take)
    gathering.end()
    gathering.end()
    assert taken == [2]


async def test_looks_get_rarer_while_nothing_is_found(autojump_clock: MockClock) -> None:
    gathering = Gathering(Reads(), Turns(), lambda: None)
    looks = 0

    def take(some: list[Part], came: ReadTogether) -> bool:
        nonlocal looks
        looks += 1
        return False

    two = parts(2)
    for _ in range(1000):
        for part in two:
            gathering.add(part, b"x", take)
        gathering.end()
    assert 1000 * 2 / (ALONE_MAX + 4) < looks < 1000 * 2 / ALONE_MAX + 20


async def test_when_its_time_is_used_up_all_tasks_have_their_turn_before_it_goes_on(
    autojump_clock: MockClock,
) -> None:
    reads, turns = Reads(), Turns()
    gathering = Gathering(reads, turns, lambda: None)
    two = parts(2)
    taken = 0

    def take(some: list[Part], came: ReadTogether) -> bool:
        nonlocal taken
        taken += 1
        turns.give(PASS_SECONDS)  # that long did it take
        return True

    def come() -> None:
        for part in two:
            assert gathering.add(part, b"x", take)
        gathering.end()

    come()
    assert (taken, reads.asked_for_a_pass) == (1, 1)
    come()
    assert taken == 1  # each has its own turn in the row
    reads.passes += 1
    come()
    assert taken == 2


async def test_replication_hears_of_a_run_also_if_it_fails(autojump_clock: MockClock) -> None:
    rounds: list[str] = []
    gathering = Gathering(Reads(), Turns(), lambda: rounds.append("end"))

    def take(some: list[Part], came: ReadTogether) -> bool:
        raise ConnectionLost("for some reason")

    wanted: TakeTogether = take
    for part in parts(2):
        assert gathering.add(part, b"x", wanted)
    with pytest.raises(ConnectionLost):
        gathering.end()
    assert rounds == ["end"]


async def test_one_connection_with_other_topics_does_not_part_the_others(
    autojump_clock: MockClock,
) -> None:
    for odd in (0, 1, CROWD - 1):
        parts = [frame(n, topic="New" if n == odd else "T") for n in range(CROWD)]
        crowd = await alike([list(enumerate(parts))])
        assert crowd.node.alone == [odd]
        assert crowd.rounds == 2
        assert all(crowd.answers(n) == [(n, 0)] for n in range(CROWD))


async def test_it_is_looked_at_alone_for_longer_and_longer_as_long_as_it_is_so(
    autojump_clock: MockClock,
) -> None:
    """Else each round would be looked at twice."""
    rounds = [
        [(n, frame(n, topic="SCHEDULE_TOPIC_XXXX" if not n else "T")) for n in range(CROWD)]
        for _ in range(8)
    ]
    crowd = await alike(rounds)
    assert [0 in split for split in crowd.split] == [True, False, True, *[False] * 3, True, False]
    assert all(len(crowd.answers(n)) == 8 for n in range(1, CROWD))


async def test_connections_whose_requests_are_handled_together_are_not_still(
    autojump_clock: MockClock,
) -> None:
    crowd = Crowd(gathers=True)
    for connection in crowd.connections:
        connection.last_active = -1.0
    await crowd.play([[(n, frame(n)) for n in range(CROWD)]])
    assert crowd.node.alone == []
    assert all(connection.last_active >= 0 for connection in crowd.connections)


class Looks(SendRuns):
    """Counts how often a run of several connections is looked for."""

    looks = 0

    def find_of(
        self, came: ReadTogether, born_hosts: bytes, *, but: Collection[int] = frozenset()
    ) -> bool:
        self.looks += 1
        return super().find_of(came, born_hosts, but=but)


async def looked(*chunks: bytes) -> tuple[int, ReadTogether]:
    """Have these come over as many connections; return how often was looked, and what is left."""
    node = Node()
    node.put("T", 1)
    broker = node.broker
    assert native.loops is not None
    runs = Looks(
        native.loops,
        suffix=broker.stamp.suffix,
        answers=answer_parts(broker.host),
        store_host=broker.host,
        body_bytes_max=1_000,
        text_bytes_max=TORN_BYTES_MIN - 1,
    )
    taker = SendRunHandler(broker.store, broker.tables, node.replication, node.send, runs)
    assert taker.take_together is not None
    some, came = parts(len(chunks)), ReadTogether.of(list(chunks))
    assert taker.take_together(some, came)
    return runs.looks, came


async def test_after_a_run_that_was_not_full_nothing_is_looked_for(
    autojump_clock: MockClock,
) -> None:
    looks, came = await looked(frame(1), frame(2) + UNUSUAL["batch"], frame(3))
    assert looks == 1
    assert [came.rest(number) for number in range(3)] == [b"", UNUSUAL["batch"], b""]


async def test_after_a_full_run_the_rest_is_the_next_one(autojump_clock: MockClock) -> None:
    looks, came = await looked(frame(1) * SENDS_MAX, frame(2) * 2, frame(3))
    assert looks == 2
    assert came.is_used_up


async def test_looks_are_close_together_again_after_one_that_has_found_something(
    autojump_clock: MockClock,
) -> None:
    finds = False
    looks = 0

    def take(some: list[Part], came: ReadTogether) -> bool:
        nonlocal looks
        looks += 1
        return finds

    gathering = Gathering(Reads(), Turns(), lambda: None)
    two = parts(2)
    for part in two:
        part.crowd, part.dispatcher = gathering, Takes(take)
    rounds = 0

    def until_the_next_look() -> int:
        nonlocal rounds
        before, rounds = looks, 0
        while looks == before:
            rounds += 1
            gathering.take(two, ReadTogether.of([b"x", b"y"]))
        return rounds

    assert [until_the_next_look() for _ in range(5)] == [1, 2, 3, 5, 9]
    finds = True
    assert until_the_next_look() == 17
    assert until_the_next_look() == 1
    finds = False
    assert [until_the_next_look() for _ in range(3)] == [1, 2, 3]


async def test_a_connection_that_was_joined_is_looked_at_as_often_as_others(
    autojump_clock: MockClock,
) -> None:
    odd = [(0, frame(topic="SCHEDULE_TOPIC_XXXX")), (1, frame(1)), (2, frame(2))]
    even = [(0, frame()), (1, frame(1)), (2, frame(2))]
    crowd = await alike([odd, even, even, odd, even, even])
    # Alone after an odd one; once, and not three times, as it was joined between them.
    assert [0 in split for split in crowd.split] == [True, False, True, True, False, True]


class Takes:
    def __init__(self, take: TakeTogether | None) -> None:
        self.take_together = take


async def test_what_is_for_different_dispatchers_is_not_taken_together(
    autojump_clock: MockClock,
) -> None:
    def never(some: list[Part], came: ReadTogether) -> bool:
        raise AssertionError

    gathering = Gathering(Reads(), Turns(), lambda: None)
    for takes in ([Takes(never), Takes(lambda _, __: True)], [Takes(None), Takes(None)]):
        two = parts(2)
        for part, dispatcher in zip(two, takes, strict=True):
            part.dispatcher = dispatcher
        came = ReadTogether.of([b"x", b"y"])
        assert gathering.take(two, came) == []
        assert not came.is_used_up
