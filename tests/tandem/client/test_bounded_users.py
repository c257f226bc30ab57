"""Our clients as users with bounds, against a real node: they wait, and nothing is lost."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest
import trio

import tandem
from tandem.testing import RunningCluster, running_cluster
from tests.support.patience import ATTEMPT_MS, PATIENCE_MS

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("bounded users")]

SHOP, BANK = ("shop", "a secret of the shop"), ("bank", "a secret of the bank")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"security": {"clients": "authenticated"}}
    with (
        running_cluster(tmp_path_factory.mktemp("bounded"), settings=settings) as running,
        tandem.BlockingAdmin(running.access) as admin,
    ):
        admin.create_user(*SHOP)
        admin.create_user(*BANK)
        yield running


def bound(cluster: RunningCluster, quota: tandem.UserQuota, *topics: str) -> dict[str, int]:
    """Give the shop bounds; return what was refused of it until now."""
    with tandem.BlockingAdmin(cluster.access) as admin:
        for topic in topics:
            admin.create_topic(topic, queue_nums=2)
        admin.alter_user("shop", quota=quota)
        return admin.user("shop").refused


def patient_producer(access: tandem.ClusterAccess) -> tandem.Producer:
    """Sends nothing again because the machine is busy: it would be there twice."""
    return tandem.Producer(
        access, "PG", send_msg_timeout_ms=PATIENCE_MS, attempt_timeout_ms=ATTEMPT_MS
    )


async def test_a_producer_waits_and_all_its_messages_are_sent_once(
    cluster: RunningCluster,
) -> None:
    bound(cluster, tandem.UserQuota(requests_per_second=50), "bounded")
    access = tandem.ClusterAccess(cluster.name_servers, *SHOP)
    bodies = [b"%d" % number for number in range(150)]
    began = time.monotonic()
    async with patient_producer(access) as producer:
        results = await producer.send_many(tandem.Message("bounded", body) for body in bodies)
    took = time.monotonic() - began
    assert all(isinstance(each, tandem.SendResult) for each in results), results
    # A hundred of them have waited for their turn.
    assert took > 1.5
    refused = bound(cluster, tandem.UserQuota())
    assert refused["requests a second"] > 0
    async with tandem.PullConsumer(cluster.access, "CG") as consumer:
        seen = Counter([each.body async for each in consumer.messages("bounded", until_end=True)])
    assert seen == Counter(bodies)


def test_a_bounded_consumer_reads_everything_and_commits(cluster: RunningCluster) -> None:
    bound(cluster, tandem.UserQuota(), "read")
    bodies = [b"%d" % number for number in range(400)]
    with tandem.BlockingProducer(
        cluster.access, "PG", send_msg_timeout_ms=PATIENCE_MS, attempt_timeout_ms=ATTEMPT_MS
    ) as producer:
        producer.send_many(tandem.Message("read", body) for body in bodies)
    bound(cluster, tandem.UserQuota(requests_per_second=4))
    access = tandem.ClusterAccess(cluster.name_servers, *SHOP)
    seen: Counter[bytes] = Counter()
    with tandem.BlockingPullConsumer(access, "bounded") as consumer:
        seen.update(each.body for each in consumer.messages("read", until_end=True))
        for queue in consumer.fetch_message_queues("read"):
            consumer.update_consume_offset(queue, 7)
            assert consumer.fetch_consume_offset(queue) == 7
    assert seen == Counter(bodies)
    assert bound(cluster, tandem.UserQuota())["requests a second"] > 0


async def test_one_user_over_its_bounds_does_not_delay_another(cluster: RunningCluster) -> None:
    bound(cluster, tandem.UserQuota(requests_per_second=20), "both")
    shop = tandem.ClusterAccess(cluster.name_servers, *SHOP)
    bank = tandem.ClusterAccess(cluster.name_servers, *BANK)
    results: list[object] = []
    times: list[float] = []
    async with patient_producer(shop) as flood, patient_producer(bank) as producer:

        async def send_all() -> None:
            messages = [tandem.Message("both", b"x")] * 100
            results.extend(await flood.send_many(messages))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            while not results or len(times) < 20:
                began = time.monotonic()
                await producer.send(tandem.Message("both", b"y"))
                times.append(time.monotonic() - began)
                await trio.sleep(0.02)
    assert all(isinstance(each, tandem.SendResult) for each in results), results
    # Half of the shop's messages wait for two seconds and more.
    assert sorted(times)[len(times) // 2] < 1
    refused = bound(cluster, tandem.UserQuota())
    assert refused["requests a second"] > 0
    with tandem.BlockingAdmin(cluster.access) as admin:
        assert not any(admin.user("bank").refused.values())
