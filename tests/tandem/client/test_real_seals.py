"""Our own clients as users of real clusters that take no signature which can be sent again."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.client.errors import BrokerError, ConnectionLostError
from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tandem.wire.response_code import ResponseCode
from tests.support.patience import PATIENCE_MS, PATIENT_LEASE
from tests.tandem.client.three_worlds import WORLDS, clients_of

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("clients")]

SECURITY: dict[str, dict[str, Any]] = {
    "security": {"clients": "authorized", "signatures": "replay_proof"}
}
TOPIC, GROUP, SECRET = "shop-orders", "shop", "a secret of the shop"


@contextmanager
def shop_of(directory: Path, *, fenced: bool) -> Iterator[RunningCluster]:
    """Run a cluster with a user who may use one topic and one group."""
    running = running_fenced_cluster if fenced else running_cluster
    settings = SECURITY | PATIENT_LEASE if fenced else SECURITY
    with running(directory, settings=settings) as cluster:
        with tandem.BlockingAdmin(cluster.access) as admin:
            admin.create_user("shop", SECRET)
            entries = [
                PolicyEntryInfo("Topic:shop-*", ["Pub", "Sub", "Create"], decision="Allow"),
                PolicyEntryInfo(f"Group:{GROUP}", ["Sub"], decision="Allow"),
            ]
            admin.grant("shop", entries)
            admin.create_topic(TOPIC, queue_nums=2)
        yield cluster


def access_of(cluster: RunningCluster, secret: str = SECRET) -> tandem.ClusterAccess:
    return tandem.ClusterAccess(cluster.name_servers, "shop", secret)


@pytest.mark.parametrize("fenced", [False, True])
def test_producers_and_consumers_of_every_world_seal_also_after_a_switch(
    tmp_path: Path, *, fenced: bool
) -> None:
    with shop_of(tmp_path, fenced=fenced) as cluster:
        access, sent = access_of(cluster), []
        for number, world in enumerate(WORLDS):
            with (
                clients_of(world) as clients,
                clients.producer(access, GROUP, send_msg_timeout_ms=PATIENCE_MS) as producer,
            ):
                for part in range(2):
                    body = f"{world} {part}".encode()
                    assert producer.send(tandem.Message(TOPIC, body)).status.name == "SEND_OK"
                    sent.append(body)
                    if fenced and not part and not number:
                        killed = cluster.kill_master()
                        cluster.wait_for_master(other_than=killed)
                        cluster.start(killed)
                        cluster.wait_in_sync()
                with pytest.raises(BrokerError) as caught:
                    producer.send(tandem.Message("other", b"x"))
                assert caught.value.code == ResponseCode.NO_PERMISSION
        with clients_of("asyncio") as clients, clients.consumer(access, GROUP) as consumer:
            seen = []
            for message in consumer.subscribe(TOPIC):
                seen.append(message.body)
                if len(set(seen)) == len(sent):
                    consumer.stop()
        assert set(seen) == set(sent)
        with tandem.BlockingPullConsumer(access, GROUP) as puller:
            assert {each.body for each in puller.messages(TOPIC, until_end=True)} == set(sent)


def test_another_secret_is_asked_for_at_once_and_the_old_one_is_refused(tmp_path: Path) -> None:
    with shop_of(tmp_path, fenced=False) as cluster:
        with (
            tandem.BlockingProducer(access_of(cluster), GROUP) as producer,
            tandem.BlockingAdmin(cluster.access) as admin,
        ):
            producer.send(tandem.Message(TOPIC, b"old"))
            admin.alter_user("shop", secret="a new secret of the shop")
            with suppress(ConnectionLostError, BrokerError):  # the node ends what the user had open
                producer.send(tandem.Message(TOPIC, b"refused"))
            with pytest.raises(BrokerError) as caught:
                producer.send(tandem.Message(TOPIC, b"refused"))
            assert caught.value.code == ResponseCode.NO_PERMISSION
        with tandem.BlockingProducer(access_of(cluster, "a new secret of the shop"), GROUP) as new:
            new.send(tandem.Message(TOPIC, b"new"))
        log = "".join(map(cluster.log_text, cluster.nodes))
        assert "the seal is wrong" in log
        assert "secret of the shop" not in log
