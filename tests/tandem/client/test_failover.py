"""The client against a fenced group of real nodes that loses its master, in several ways."""

from collections.abc import Iterator

import pytest
import trio

import tandem
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.processes import run_example

SECONDS_ALONE = 1.0
"""Less than a lease: the frozen master is still the master when it goes on."""

# One group for all of them.
pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("failover")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_fenced_cluster(tmp_path_factory.mktemp("fenced")) as running:
        yield running


def patient_producer(cluster: RunningCluster) -> tandem.Producer:
    """Goes on until there is a master, however long the machine takes."""
    return tandem.Producer(
        cluster.name_servers, group="PG", resend_until_ok=True, send_msg_timeout_ms=60_000
    )


async def test_sends_of_every_contract_outlive_a_killed_master(cluster: RunningCluster) -> None:
    cluster.wait_in_sync()
    async with patient_producer(cluster) as producer:
        for ack in tandem.Ack:
            result = await producer.send(tandem.Message("contracts", b"before"), ack=ack)
            assert result.status is tandem.SendStatus.SEND_OK
        killed = await trio.to_thread.run_sync(cluster.kill_master)
        with trio.fail_after(PATIENCE_SECONDS):
            for ack in reversed(tandem.Ack):
                result = await producer.send(tandem.Message("contracts", b"after"), ack=ack)
                assert result.status is tandem.SendStatus.SEND_OK
    cluster.start(killed)
    cluster.wait_in_sync()


async def test_many_sends_and_a_reader_go_on_through_a_frozen_master(
    cluster: RunningCluster,
) -> None:
    cluster.wait_in_sync()
    acknowledged: set[str] = set()
    read: list[str] = []
    positions: list[tuple[int, int]] = []
    frozen = cluster.wait_for_master()
    done = trio.Event()

    async def send(producer: tandem.Producer) -> None:
        for number in range(60):
            messages = [tandem.Message("frozen", b"%d %d" % (number, each)) for each in range(5)]
            for outcome in await producer.send_many(messages):
                assert isinstance(outcome, tandem.SendResult), outcome
                assert outcome.status is tandem.SendStatus.SEND_OK, outcome.reason
                acknowledged.add(outcome.msg_id)
            if number == 20:
                cluster.freeze(frozen)
            await trio.sleep(0.01)
        done.set()

    async def follow(consumer: tandem.PullConsumer) -> None:
        seen = tandem.DuplicateFilter()
        async for message in consumer.messages("frozen"):
            positions.append((message.queue_id, message.queue_offset))
            if not seen.is_duplicate(message):
                read.append(message.properties["UNIQ_KEY"])

    async with (
        patient_producer(cluster) as producer,
        tandem.PullConsumer(cluster.name_servers, group="CG") as consumer,
        trio.open_nursery() as nursery,
    ):
        await producer.send(tandem.Message("frozen", b"first"))
        nursery.start_soon(send, producer)
        nursery.start_soon(follow, consumer)
        with trio.fail_after(PATIENCE_SECONDS):
            await done.wait()
        await until(lambda: acknowledged <= set(read))
        nursery.cancel_scope.cancel()
    cluster.thaw(frozen)
    cluster.wait_in_sync()
    assert len(read) == len(set(read))
    assert len(positions) == len(set(positions)), "an offset was read twice"


async def test_a_commit_outlives_the_master_that_took_it(cluster: RunningCluster) -> None:
    cluster.wait_in_sync()
    async with (
        tandem.Producer(cluster.name_servers, group="PG") as producer,
        tandem.PullConsumer(cluster.name_servers, group="CG") as consumer,
    ):
        results = [
            await producer.send(tandem.Message("commits", b"x"), queue_id=0) for _ in range(3)
        ]
        queue = results[0].queue
        await consumer.update_consume_offset(queue, 2)
        killed = await trio.to_thread.run_sync(cluster.kill_master)
        with trio.fail_after(PATIENCE_SECONDS):
            assert await consumer.fetch_consume_offset(queue) == 2
            await consumer.update_consume_offset(queue, 3)
            assert await consumer.fetch_consume_offset(queue) == 3
    cluster.start(killed)
    cluster.wait_in_sync()


async def test_a_fresh_reader_that_asks_a_restarted_node_first_reads_everything(
    cluster: RunningCluster,
) -> None:
    """A node that has just started knows only itself: no master, and the end of its own log."""
    cluster.wait_in_sync()
    killed = ""
    acknowledged: set[str] = set()
    async with patient_producer(cluster) as producer:
        for number in range(200):
            if number == 100:
                killed = await trio.to_thread.run_sync(cluster.kill_master)
            result = await producer.send(tandem.Message("restarted", b"%d" % number))
            assert result.status is tandem.SendStatus.SEND_OK
            acknowledged.add(result.msg_id)
    own = cluster.spec.node(killed).client_address
    others = [node.name for node in cluster.spec.nodes if node.name != killed]
    read: set[str] = set()

    async def read_to_end(consumer: tandem.PullConsumer) -> None:
        async for message in consumer.messages("restarted", until_end=True):
            read.add(message.properties["UNIQ_KEY"])

    # The others are frozen, so that it knows nobody else when the reader asks it.
    for name in others:
        cluster.freeze(name)
    cluster.start(killed)
    name_servers = [own, *(cluster.spec.node(name).client_address for name in others)]
    async with tandem.PullConsumer(name_servers, group="CG") as consumer, trio.open_nursery() as n:
        n.start_soon(read_to_end, consumer)
        await trio.sleep(SECONDS_ALONE)
        for name in others:
            cluster.thaw(name)
        n.cancel_scope.deadline = trio.current_time() + PATIENCE_SECONDS
    assert acknowledged <= read
    cluster.wait_in_sync()


def test_the_example_loses_nothing(cluster: RunningCluster) -> None:
    cluster.wait_in_sync()
    printed = "\n".join(run_example("failover.py", str(cluster.spec.file), "60"))
    assert "acknowledged 60 of 60" in printed
    assert "lost 0;" in printed
