"""The client against real nodes, which are killed and paused under it. And the examples."""

import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import tandem
from tandem.testing import RunningCluster, running_cluster
from tests.support.paths import ROOT
from tests.support.patience import ATTEMPT_MS, PATIENCE_MS, PATIENCE_SECONDS, until
from tests.support.processes import end_of, run_example, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("clients")]

MESSAGE = tandem.Message("orders", b"hello")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One for those that do not hurt it; each has a topic of its own."""
    with running_cluster(tmp_path_factory.mktemp("healthy")) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, settings={"replication": {"slave_timeout_ms": 300}}) as running:
        yield running


def patient_producer(cluster: RunningCluster, *, retries: int | None = None) -> tandem.Producer:
    """Sends nothing again because the machine is busy: it would be there twice."""
    return tandem.Producer(
        cluster.name_servers,
        group="PG",
        retry_times_when_send_failed=retries,
        send_msg_timeout_ms=PATIENCE_MS,
        attempt_timeout_ms=ATTEMPT_MS,
    )


async def test_what_is_sent_is_read_back(healthy: RunningCluster) -> None:
    bodies = [b"%d" % number for number in range(500)]
    async with patient_producer(healthy) as producer:
        for result in await producer.send_many(tandem.Message("many", body) for body in bodies):
            assert isinstance(result, tandem.SendResult)
            assert result.status is tandem.SendStatus.SEND_OK
        batch = await producer.send_batch([tandem.Message("many", b"hello")] * 3)
        assert len(batch.offset_msg_id.split(",")) == 3
    seen: Counter[bytes] = Counter()
    async with tandem.PullConsumer(healthy.name_servers, group="CG") as consumer:
        async for message in consumer.messages("many", until_end=True):
            seen[message.body] += 1
    assert seen == Counter({**dict.fromkeys(bodies, 1), b"hello": 3})


def test_plain_code_does_the_same(healthy: RunningCluster) -> None:
    with tandem.BlockingAdmin(healthy.name_servers) as admin:
        admin.create_topic("plain", queue_nums=3)
    with tandem.BlockingProducer(
        healthy.name_servers, "PG", send_msg_timeout_ms=PATIENCE_MS, attempt_timeout_ms=ATTEMPT_MS
    ) as producer:
        results = [producer.send(tandem.Message("plain", b"x", tags="A")) for _ in range(6)]
    assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2]
    with tandem.BlockingPullConsumer(healthy.name_servers, "CG") as consumer:
        assert sum(1 for _ in consumer.messages("plain", until_end=True, tags="A")) == 6
        assert sum(1 for _ in consumer.messages("plain", until_end=True, tags="B")) == 0
        queue = results[0].queue
        assert consumer.fetch_consume_offset(queue) is None
        consumer.update_consume_offset(queue, 1)
        assert consumer.fetch_consume_offset(queue) == 1


async def test_a_slave_that_hangs_makes_a_send_unsure_but_stored(cluster: RunningCluster) -> None:
    async with patient_producer(cluster) as producer:
        await producer.send(MESSAGE)
        cluster.freeze("broker-a-1")
        result = await producer.send(MESSAGE)
        assert result.status is tandem.SendStatus.FLUSH_SLAVE_TIMEOUT
        assert "broker-a-1" in result.reason
        quick = await producer.send(MESSAGE, wait_store_msg_ok=False)
        assert quick.status is tandem.SendStatus.SEND_OK
        cluster.kill("broker-a-1")
        with trio.fail_after(PATIENCE_SECONDS):
            while (await producer.send(MESSAGE)).status is not (
                tandem.SendStatus.SLAVE_NOT_AVAILABLE
            ):
                await trio.sleep(0.1)


async def test_reads_go_on_from_the_slave_and_sends_fail_cleanly_without_the_master(
    cluster: RunningCluster,
) -> None:
    async with (
        patient_producer(cluster, retries=0) as producer,
        tandem.PullConsumer(cluster.name_servers, group="CG") as consumer,
    ):
        results = [await producer.send(MESSAGE, queue_id=0) for _ in range(20)]
        queue = results[0].queue
        assert (await consumer.pull(queue, 0, 1)).max_offset == 20
        # A slave asks for the settings of new topics twice a second.
        topics = cluster.store_directory("broker-a-1") / "config" / "topics.json"
        await until(lambda: topics.exists() and '"orders"' in topics.read_text())
        # Its queues follow its log, and a busy one has that after the answer to a send.
        slave = cluster.spec.node("broker-a-1").client_address
        async with tandem.Admin(cluster.name_servers) as admin:
            with trio.fail_after(PATIENCE_SECONDS):
                while await admin.max_offset(slave, queue.topic, queue.queue_id) < 20:
                    await trio.sleep(0.05)
        cluster.kill("broker-a-0")
        with trio.fail_after(PATIENCE_SECONDS):
            found = await consumer.pull(queue, 10)
        assert [message.queue_offset for message in found.messages] == list(range(10, 20))
        with pytest.raises(tandem.ClientError) as caught:
            await producer.send(MESSAGE)
        assert not caught.value.outcome_unknown
        cluster.start("broker-a-0")
        with trio.fail_after(PATIENCE_SECONDS):
            back = None
            while back is None:
                try:
                    back = await producer.send(MESSAGE, queue_id=0)
                except tandem.ClientError as error:
                    assert not error.outcome_unknown  # noqa: PT017
                    await trio.sleep(0.1)
        assert back.queue_offset == 20


async def sent_safely(producer: tandem.Producer) -> None:
    """Send until a message is safe, however busy the machine."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(tandem.ClientError):
                if (await producer.send(MESSAGE)).status is tandem.SendStatus.SEND_OK:
                    return
            await trio.sleep(0.1)


async def test_a_frozen_master_leaves_a_send_unknown(cluster: RunningCluster) -> None:
    async with tandem.Producer(
        cluster.name_servers,
        group="PG",
        retry_times_when_send_failed=0,
        send_msg_timeout_ms=2_000,
    ) as producer:
        await sent_safely(producer)
        cluster.freeze("broker-a-0")
        with pytest.raises(tandem.SendTimeoutError) as caught:
            await producer.send(MESSAGE)
        assert caught.value.outcome_unknown
        cluster.thaw("broker-a-0")
        await sent_safely(producer)


def test_the_examples_run(healthy: RunningCluster) -> None:
    name_servers = ";".join(healthy.name_servers)
    produced = run_example("produce.py", name_servers, "3")
    assert [line.split()[1] for line in produced] == ["SEND_OK"] * 3
    assert len(run_example("consume.py", name_servers)) == 3
    assert run_example("consume.py", name_servers) == []
    worked = run_example("workers.py", name_servers, "2")
    assert sorted(worked) == [f"attempt 1: hello {number}" for number in range(3)]
    service = [sys.executable, str(ROOT / "examples" / "service.py"), name_servers]
    with started(service) as process:
        wait_output(process, "hello 2")
        assert "Traceback" not in end_of(process, signal.SIGINT)
        assert process.returncode == 0


async def test_a_request_is_replied_to_by_its_consumer(healthy: RunningCluster) -> None:
    async with (
        tandem.Producer(healthy.name_servers, group="asks") as asking,
        tandem.Producer(healthy.name_servers, group="replies") as replying,
        tandem.PullConsumer(healthy.name_servers, group="CG") as consumer,
        trio.open_nursery() as nursery,
    ):
        await asking.send(tandem.Message("questions", b"none"))

        async def serve() -> None:
            async with contextlib.aclosing(consumer.messages("questions")) as messages:
                async for message in messages:
                    if "CORRELATION_ID" in message.properties:
                        await replying.reply(message, message.body.upper())

        nursery.start_soon(serve)
        for question in (b"a", b"b"):
            reply = await asking.request(tandem.Message("questions", question), timeout_ms=30_000)
            assert reply.body == question.upper()
        nursery.cancel_scope.cancel()
