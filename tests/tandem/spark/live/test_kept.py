"""What a micro-batch asks of a cluster, and which connections it opens: counted, not timed."""

from collections.abc import Iterator

import pytest

from tandem.client.core import ClientCore
from tandem.spark.live import cluster, reader
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.kept import Kept
from tandem.spark.live.options import LiveOptions
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import pulled
from tandem.spark.live.stream_plan import StreamPlan
from tandem.wire.request_code import RequestCode
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


def test_another_cluster_gets_connections_of_its_own(world: LiveWorld) -> None:
    kept = Kept()
    task(world, 0, 10, kept)
    other = options(accessKey="someone", secretKey="twelve letters")
    assert kept.take(other.access) is None
    assert kept.take(options().access) is not None


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
