"""Messages received by POP, out of real nodes of both kinds, with a master that is killed."""

from collections.abc import Iterator

import pytest
import trio

import tandem
from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("pop")]

LONG_MS = 600_000


@pytest.fixture(scope="module", params=["classic", "fenced"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    start = running_cluster if request.param == "classic" else running_fenced_cluster
    with start(tmp_path_factory.mktemp("pop")) as running:
        yield running


@pytest.fixture
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("fenced")
    with running_fenced_cluster(directory, settings=PATIENT_LEASE) as running:
        yield running


async def send(cluster: RunningCluster, topic: str, count: int) -> None:
    async with tandem.Producer(cluster.name_servers, group="PG") as producer:
        for result in await producer.send_many(
            tandem.Message(topic, b"%d" % number) for number in range(count)
        ):
            assert isinstance(result, tandem.SendResult)
            assert result.status is tandem.SendStatus.SEND_OK


async def receive(
    consumer: tandem.SimpleConsumer, topic: str, count: int, invisible_ms: int = LONG_MS
) -> list[tandem.PoppedMessage]:
    """Receive until this many messages have come."""
    found: list[tandem.PoppedMessage] = []
    with trio.fail_after(PATIENCE_SECONDS):
        while len(found) < count:
            found += await consumer.receive(topic, invisible_ms=invisible_ms, wait_ms=1_000)
    return found


async def test_what_is_acknowledged_never_comes_again_and_the_rest_does(
    cluster: RunningCluster,
) -> None:
    topic = cluster.topic(queues=2)
    await send(cluster, topic, 40)
    async with tandem.SimpleConsumer(cluster.name_servers, "CG") as consumer:
        found = await receive(consumer, topic, 40, invisible_ms=20_000)
        assert sorted(int(each.body) for each in found) == list(range(40))
        acked, rest = found[:30], found[30:]
        assert await consumer.ack(acked[0])
        assert await consumer.ack(acked[1:])
        again = await receive(consumer, topic, 10)
        assert {each.body for each in again} == {each.body for each in rest}
        assert {(each.reconsume_times, each.topic) for each in again} == {(1, topic)}
        assert not await consumer.ack(rest[0])
        assert await consumer.ack(again)
        assert await consumer.receive(topic, wait_ms=0) == []


async def test_a_message_is_kept_as_long_as_it_is_extended_and_given_back_at_once(
    cluster: RunningCluster,
) -> None:
    topic = cluster.topic(queues=1)
    await send(cluster, topic, 2)
    async with tandem.SimpleConsumer(cluster.name_servers, "CG") as consumer:
        kept, other = await receive(consumer, topic, 2)
        handle = kept.handle
        assert await consumer.extend(kept, LONG_MS)
        assert kept.handle != handle
        assert await consumer.extend(other, 0)
        (again,) = await receive(consumer, topic, 1)
        assert again.body == other.body
        assert not await consumer.extend(other, 1_000)
        assert await consumer.ack([kept, again])


async def test_consumers_share_and_wait_for_messages(cluster: RunningCluster) -> None:
    topic = cluster.topic(queues=2)
    found: list[list[bytes]] = [[], []]

    async def take(mine: list[bytes]) -> None:
        async with tandem.SimpleConsumer(cluster.name_servers, "CG") as consumer:
            while len(found[0]) + len(found[1]) < 60:
                for message in await consumer.receive(topic, 4, wait_ms=2_000):
                    mine.append(message.body)
                    assert await consumer.ack(message)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for mine in found:
                nursery.start_soon(take, mine)
            await send(cluster, topic, 60)
    assert sorted(map(int, found[0] + found[1])) == list(range(60))


async def test_in_order_what_is_not_acknowledged_comes_again_in_its_place(
    cluster: RunningCluster,
) -> None:
    topic = cluster.topic(queues=1)
    await send(cluster, topic, 4)
    async with tandem.SimpleConsumer(cluster.name_servers, "OG", orderly=True) as consumer:
        first = await consumer.receive(topic, 2, invisible_ms=LONG_MS)
        assert [each.queue_offset for each in first] == [0, 1]
        assert await consumer.receive(topic, 2, wait_ms=0) == []
        assert await consumer.ack(first[0])
        assert await consumer.extend(first[1], 1)
        again = await receive(consumer, topic, 1)
        assert (again[0].queue_offset, again[0].reconsume_times) == (1, 1)
        assert await consumer.ack(again)
        rest = again[1:] + await consumer.receive(topic, wait_ms=0)
        assert [each.queue_offset for each in rest] == [2, 3]


async def test_filters(cluster: RunningCluster) -> None:
    topic = cluster.topic(queues=1)
    async with tandem.Producer(cluster.name_servers, group="PG") as producer:
        for tag in "abc":
            await producer.send(tandem.Message(topic, tag.encode(), tags=tag))
    async with tandem.SimpleConsumer(cluster.name_servers, "FG") as consumer:
        found = await consumer.receive(topic, tags="a || c")
        assert [each.body for each in found] == [b"a", b"c"]


def test_plain_code_does_the_same(cluster: RunningCluster) -> None:
    topic = cluster.topic(queues=1)
    with tandem.BlockingProducer(cluster.name_servers, "PG") as producer:
        producer.send(tandem.Message(topic, b"x"))
    with tandem.BlockingSimpleConsumer(cluster.name_servers, "CG") as consumer:
        (message,) = consumer.receive(topic)
        assert consumer.extend(message, LONG_MS)
        assert consumer.ack(message)
        assert not consumer.ack(message)
        assert consumer.receive(topic, wait_ms=0) == []


async def test_a_topic_that_is_not_there_is_said(cluster: RunningCluster) -> None:
    async with tandem.SimpleConsumer(cluster.name_servers, "CG") as consumer:
        with pytest.raises(tandem.RouteNotFoundError) as caught:
            await consumer.receive("none", wait_ms=0)
        assert caught.value.cause is tandem.RouteCause.NO_TOPIC


async def test_handles_are_good_at_the_next_master_and_nothing_acknowledged_comes_again(
    fenced: RunningCluster,
) -> None:
    topic = fenced.topic(queues=2)
    await send(fenced, topic, 60)
    async with tandem.SimpleConsumer(fenced.name_servers, "CG") as consumer:
        found = await receive(consumer, topic, 60)
        assert await consumer.ack(found[:20])
        fenced.kill_master()
        # Nothing is handed out twice, and the handles of the master that is dead are good.
        assert await consumer.ack(found[20:40])
        assert await consumer.extend(found[40], LONG_MS)
        for message in found[41:]:
            assert await consumer.extend(message, 1)
        again = await receive(consumer, topic, 19)
        assert {each.body for each in again} == {each.body for each in found[41:]}
        assert await consumer.ack([found[40], *again])
        assert await consumer.receive(topic, wait_ms=2_000) == []
