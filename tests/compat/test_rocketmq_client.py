"""RocketMQ 5.3.3's own DefaultMQProducer and DefaultLitePullConsumer talk to a node of ours."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.machine.real_disk import RealDisk
from tests.compat.conftest import RunJava
from tests.store.store_world import check_store, open_store
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import ENVIRONMENT, NODE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CONFIG = """
cluster: {name: DefaultCluster, data_directory: data}
store:
  mapped_file_size_commit_log_bytes: 1048576
  mapped_file_size_consume_queue_bytes: 20000
  max_message_size_bytes: 262144
groups: {broker-a: {broker_role: ASYNC_MASTER}}
nodes:
  - {name: broker-a-0, group: broker-a, broker_id: 0, address: ADDRESS,
     port: 10911, ha_port: 10912, name_server_port: 9876}
"""


@pytest.fixture
def address() -> str:
    return f"{own_network()}.7"


@pytest.fixture
def running_node(tmp_path: Path, address: str) -> Iterator[Path]:
    """A node in a process of its own; the value is its store directory."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG.replace("ADDRESS", address))
    log = (tmp_path / "node.log").open("w")
    node = subprocess.Popen(
        [*NODE, "--config", str(config), "--name", "broker-a-0", "--supervised"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=ENVIRONMENT,
    )
    assert node.stdin is not None
    assert node.stdout is not None
    try:
        ready = node.stdout.readline()
        assert ready.startswith("READY"), (tmp_path / "node.log").read_text()
        yield tmp_path / "data" / "broker-a-0"
    finally:
        node.stdin.close()
        node.wait(PATIENCE_SECONDS)
        node.stdout.close()
        log.close()


@pytest.mark.usefixtures("running_node")
def test_rocketmqs_clients_send_and_read_everything(address: str, run_java: RunJava) -> None:
    """DefaultMQProducer: single, batch, compressed; DefaultLitePullConsumer: poll and commit."""
    lines = run_java("ClientProbe", f"{address}:9876", "TopicJava", 100).splitlines()
    assert sum(line.startswith("SEND_OK") for line in lines) == 102, lines
    assert lines[-1] == "sent 111 read 111 equal"
    committed = [int(line.split()[-1]) for line in lines if line.startswith("committed")]
    assert sum(committed) == 111


def test_what_rocketmqs_client_sent_is_in_the_store_of_the_node(
    tmp_path: Path, address: str, running_node: Path, run_java: RunJava
) -> None:
    run_java("ClientProbe", f"{address}:9876", "TopicJava", 5)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(running_node), str(copy)], check=True)
    sizes = {"commit_log_bytes": 1_048_576, "consume_queue_bytes": 20_000}
    with open_store(RealDisk(), str(copy), **sizes) as store:  # type: ignore[arg-type]
        messages = [m for m in check_store(store) if m.topic == "TopicJava"]
    bodies = {m.body for m in messages}
    assert {b"single %d" % n for n in range(5)} < bodies
    assert {b"batch %d" % n for n in range(10)} < bodies
    assert {m.tags for m in messages} == {"TagJ", "TagB", ""}
