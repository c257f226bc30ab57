"""A fenced group of real processes, whose master is killed."""

import secrets
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
import trio

import tandem
from tandem.client.errors import BrokerError
from tandem.cluster import LocalCluster
from tandem.cluster.spec import ClusterSpec, read_spec
from tandem.coordinator.client import EtcdClient, connect
from tandem.coordinator.interface import CoordinatorRefusedError
from tandem.wire.ha_status import FencedCommand
from tandem.wire.response_code import ResponseCode
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE
from tests.support.secret import write_secret

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NAMES = [f"broker-a-{index}" for index in (1, 2, 3)]


def fenced_spec(directory: Path) -> ClusterSpec:
    network = own_network()
    write_secret(directory / "secret", secrets.token_hex(16))
    content = {
        "cluster": {"secret_file": "secret"},
        "store": {
            "mapped_file_size_commit_log_bytes": 1_048_576,
            "mapped_file_size_consume_queue_bytes": 20_000,
            "max_message_size_bytes": 65_536,
        },
        "coordinator": {"address": f"{network}.9", **PATIENT_LEASE["coordinator"]},
        "groups": {"broker-a": {"kind": "fenced"}},
        "nodes": [
            {
                "name": name,
                "group": "broker-a",
                "broker_id": index,
                "address": f"{network}.{index}",
            }
            for index, name in enumerate(NAMES, 1)
        ],
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.encode(content))  # JSON is YAML
    return read_spec(file)


async def master_of(admin: tandem.Admin, *, after: str = "") -> str:
    """The address of the master, once there is one that is not `after`."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                route = await admin.topic_route("T")
            except tandem.ClientError:
                route = None
            address = route.broker_datas[0].broker_addrs.get(0, "") if route else ""
            if address not in ("", after):
                return address
            await trio.sleep(0.02)


async def send(producer: tandem.Producer, text: str) -> tandem.SendResult:
    """Send until the message is safe, as an application does."""
    while True:
        try:
            result = await producer.send(tandem.Message("T", text.encode()))
        except tandem.ClientError:
            await trio.sleep(0.02)
            continue
        if result.status is tandem.SendStatus.SEND_OK:
            return result


async def everything(consumer: tandem.PullConsumer) -> set[bytes]:
    return {message.body async for message in consumer.messages("T", until_end=True)}


async def expect_no_orders_from_strangers(
    spec: ClusterSpec, admin: tandem.Admin, master: str
) -> None:
    """Neither at a node, nor at the coordinator, nor with the secret of another cluster."""
    strange = tandem.ClusterAccess(spec.name_servers, secret="of another cluster")
    async with tandem.Admin(strange) as other:
        for asking in (admin, other):
            with pytest.raises(BrokerError) as caught:
                await asking.fenced_command(master, FencedCommand(command="resign"))
            assert caught.value.code == ResponseCode.NO_PERMISSION
            with pytest.raises(BrokerError) as caught:
                await asking.create_topic("TBW102")
            assert caught.value.code == ResponseCode.NO_PERMISSION
    settings = spec.coordinator
    nobody = EtcdClient([f"{settings.address}:{settings.port}"])
    for client in (nobody, connect(settings, secret="of another cluster")):
        async with aclosing(client):
            with pytest.raises(CoordinatorRefusedError):
                await client.read("/")


async def test_sends_go_on_when_the_master_is_killed_and_tables_survive(tmp_path: Path) -> None:
    spec = fenced_spec(tmp_path)
    with trio.fail_after(5 * PATIENCE_SECONDS):
        async with LocalCluster(spec) as cluster:
            await cluster.start()
            servers = spec.name_servers
            async with (
                tandem.Producer(servers, group="p") as producer,
                tandem.PullConsumer(servers, group="g") as consumer,
                tandem.Admin(servers) as admin,
            ):
                before = [await send(producer, f"before-{n}") for n in range(20)]
                queue = before[0].queue
                await consumer.update_consume_offset(queue, 1)
                master = await master_of(admin)
                name = next(node.name for node in spec.nodes if node.client_address == master)
                await expect_no_orders_from_strangers(spec, admin, master)
                assert await master_of(admin) == master
                await cluster.kill(name)
                with trio.fail_after(PATIENCE_SECONDS):
                    await send(producer, "after")
                assert await master_of(admin, after=master) != master
                assert await consumer.fetch_consume_offset(queue) == 1
                await cluster.start(name)
                assert await everything(consumer) >= {b"before-%d" % n for n in range(20)} | {
                    b"after"
                }
