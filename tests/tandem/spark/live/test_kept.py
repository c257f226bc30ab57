"""What a micro-batch asks of a cluster, and which connections it opens: counted, not timed."""

import os
from collections.abc import Iterator

import pytest

from tandem.client.core import ClientCore
from tandem.spark.errors import DataLossError
from tandem.spark.live import cluster, reader
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.kept import PLACES_MAX, Kept
from tandem.spark.live.options import LiveOptions
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import pulled
from tandem.spark.live.stream_plan import StreamPlan
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import MASTER, SLAVE, answer_to, route_of
from tests.tandem.spark.live.live_world import LiveWorld, live_world, options, queue

PULL = RequestCode.PULL_MESSAGE.value


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    with live_world() as made:

        def core(_: LiveOptions) -> ClientCore:
            return made.core()

        monkeypatch.setattr(cluster, "client_core", core)
        monkeypatch.setattr(reader, "client_core", core)
        made.fill(0, 40)
        made.fill(1, 40)
        yield made


def task(
    world: LiveWorld, start: int, end: int, kept: Kept | None, given: LiveOptions | None = None
) -> int:
    """Read both queues between two offsets; return how many records came."""
    ranges = [QueueRange(queue(0), start, end), QueueRange(queue(1), start, end)]
    pieces = pulled(ranges, given or options(), kept, world.sockets.open)
    return sum(piece.end - piece.start for found in pieces for piece in found)


def test_a_run_of_micro_batches_opens_two_connections_and_asks_for_one_route(
    world: LiveWorld,
) -> None:
    kept = Kept()
    assert [task(world, at, at + 10, kept) for at in (0, 10, 20, 30)] == [20] * 4
    assert len(world.sockets.opened) == 2
    assert world.name_server.codes() == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
    assert world.master.codes() == [PULL] * 8


def test_nothing_is_kept_where_no_worker_asks(world: LiveWorld) -> None:
    for at in (0, 10):
        task(world, at, at + 10, None)
    assert len(world.sockets.opened) == 4
    assert all(each.closed for each in world.sockets.opened)


def test_a_task_that_is_given_up_leaves_no_connection(world: LiveWorld) -> None:
    kept = Kept()
    pieces = pulled([QueueRange(queue(0), 0, 40)], options(), kept, world.sockets.open)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert all(each.closed for each in world.sockets.opened)
    assert kept.take(options().access) is None


def test_a_connection_that_the_broker_has_ended_is_opened_anew(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    (link,) = [each for each in world.sockets.opened if each.broker is world.master]
    link.broker = None  # it hangs up
    assert task(world, 10, 20, kept) == 20
    assert link.closed
    assert len(world.sockets.opened) == 3


def test_a_former_master_is_not_believed_that_messages_are_gone(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    world.time.now += 5
    world.name_server.routes["orders"] = route_of(("broker-a", {0: SLAVE, 1: MASTER}))
    began_anew = PullMessageResponseHeader(0, 30, 30, 40)
    world.master.handlers[PULL] = lambda request: answer_to(
        request, ResponseCode.PULL_OFFSET_MOVED, began_anew
    )
    assert task(world, 10, 20, kept) == 20
    world.slave.handlers[PULL] = world.master.handlers[PULL]
    world.time.now += 5
    with pytest.raises(DataLossError):
        task(world, 20, 30, kept)


def test_a_fork_has_none_of_them(world: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert kept.take(options().access) is None


def test_a_connection_that_fell_silent_in_a_task_is_not_kept(world: LiveWorld) -> None:
    kept = Kept()
    answer = world.master.handlers[PULL]

    def silent_once(_: RemotingCommand) -> None:
        world.master.handlers[PULL] = answer

    world.master.handlers[PULL] = silent_once
    assert task(world, 0, 10, kept) == 20
    links = [each for each in world.sockets.opened if each.broker is not world.name_server]
    assert [each.closed for each in links] == [True, False]


def test_a_kept_connection_is_to_whom_its_node_is_now(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    world.time.now += 40
    world.name_server.routes["orders"] = route_of(("broker-a", {0: SLAVE, 1: MASTER}))
    began_anew = PullMessageResponseHeader(0, 30, 30, 40)
    world.master.handlers[PULL] = lambda request: answer_to(
        request, ResponseCode.PULL_OFFSET_MOVED, began_anew
    )
    assert task(world, 10, 20, kept, options(readFrom="slave")) == 20


def test_another_cluster_gets_connections_of_its_own(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    other = options(accessKey="someone", secretKey="twelve letters")
    assert kept.take(other.access) is None
    assert kept.take(options().access) is not None


def test_routes_of_other_tasks_are_not_looked_after(world: LiveWorld) -> None:
    kept = Kept()
    ask = world.name_server.codes
    for name in ("a", "b", "c"):
        world.name_server.routes[name] = world.name_server.routes["orders"]
        world.fill(0, 10, name)
        list(pulled([QueueRange(queue(0, topic=name), 0, 5)], options(), kept, world.sockets.open))
    world.time.now += 40
    before = len(ask())
    list(pulled([QueueRange(queue(0, topic="c"), 5, 10)], options(), kept, world.sockets.open))
    assert len(ask()) == before + 1


def test_no_more_than_some_clusters_are_kept(world: LiveWorld) -> None:
    kept = Kept()
    users = [
        options(accessKey=f"user{number}", secretKey="twelve letters")
        for number in range(PLACES_MAX + 2)
    ]
    for user in users:
        task(world, 0, 10, kept, user)
    assert [kept.take(each.access) is None for each in users[:3]] == [True, True, False]
    assert sum(not each.closed for each in world.sockets.opened) == 2 * PLACES_MAX


def test_a_connection_that_has_ended_is_closed_whoever_is_asked_next(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    (link,) = [each for each in world.sockets.opened if each.broker is world.master]
    link.broker = None
    world.name_server.routes["a"] = route_of(("broker-a", {0: SLAVE}))
    world.fill(0, 10, "a")
    list(pulled([QueueRange(queue(0, topic="a"), 0, 5)], options(), kept, world.sockets.open))
    assert link.closed


def test_planning_a_micro_batch_asks_each_queue_for_its_end_and_nothing_else(
    world: LiveWorld,
) -> None:
    with Cluster(options(), world.sockets.open) as asked:
        clock, sleep = world.time.monotonic, world.time.sleep
        plan = StreamPlan(options(startingOffsets="earliest"), asked, clock=clock, sleep=sleep)
        at = plan.initial()
        at_first = plan.next_end(at, 10)
        plan.ranges(at, at_first)
        before = len(world.master.requests), len(world.name_server.requests)
        end = plan.next_end(at_first, 10)
        assert sum(map(len, plan.ranges(at_first, end))) == 10
        assert world.master.codes()[before[0] :] == [RequestCode.GET_MAX_OFFSET] * 2
        assert world.name_server.codes()[before[1] :] == []
    assert len(world.sockets.opened) == 2
