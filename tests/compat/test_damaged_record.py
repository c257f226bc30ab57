"""RocketMQ 5.3.3's own push consumer at a record that is damaged: it waits, and skips nothing."""

import json
import subprocess
from pathlib import Path

import pytest

from store.machine.real_disk import RealDisk
from tests.compat.conftest import StartJava
from tests.store.store_world import a_message, open_store, put
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT, NODE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

COUNT = 400
DAMAGED = 100

CONFIG = """
cluster: {name: DefaultCluster, data_directory: data}
store:
  mapped_file_size_commit_log_bytes: 262144
  mapped_file_size_consume_queue_bytes: 2000
  max_message_size_bytes: 100000
  message_index_enable: false
groups: {broker-a: {broker_role: ASYNC_MASTER}}
nodes:
  - {name: broker-a-0, group: broker-a, broker_id: 0, address: ADDRESS,
     port: 10911, ha_port: 10912, name_server_port: 9876}
"""


class Node:
    """A classic master on a store of 400 messages."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        self.store = directory / "data" / "broker-a-0"
        self._process: subprocess.Popen[str] | None = None
        (directory / "cluster.yaml").write_text(CONFIG.replace("ADDRESS", address))
        with open_store(
            RealDisk(),
            str(self.store),
            commit_log_bytes=262_144,
            consume_queue_bytes=2_000,
            message_index_enable=False,
        ) as store:
            for number in range(COUNT):
                put(store, a_message(number, body_bytes=2_000))
            queue = store.queues.find("TopicA", 0)
            assert queue is not None
            self.place = queue.unit(DAMAGED)[0] + 500
        topic = {"topicName": "TopicA", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        (self.store / "config").mkdir(exist_ok=True)
        table = {"topicConfigTable": {"TopicA": topic}}
        (self.store / "config" / "topics.json").write_text(json.dumps(table))

    def flip(self) -> None:
        file = self.store / "commitlog" / f"{self.place - self.place % 262_144:020d}"
        data = bytearray(file.read_bytes())
        data[self.place % 262_144] ^= 1
        file.write_bytes(data)

    def start(self) -> None:
        with (self.directory / "node.log").open("a") as log:
            self._process = subprocess.Popen(
                [*NODE, "--config", "cluster.yaml", "--name", "broker-a-0", "--supervised"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=ENVIRONMENT,
                cwd=self.directory,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("READY"), self.log

    def stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._process.stdout.close()

    @property
    def log(self) -> str:
        return (self.directory / "node.log").read_text()


def test_it_waits_at_a_damaged_record_and_goes_on_when_it_is_healed(
    tmp_path: Path, start_java: StartJava
) -> None:
    node = Node(tmp_path, f"{own_network()}.8")
    node.flip()
    node.start()
    consumer = start_java("DamagedProbe", f"{node.address}:9876", "TopicA")
    assert consumer.stdout is not None
    try:
        seen: list[int] = []
        while len(seen) < DAMAGED:
            line = consumer.stdout.readline()
            assert line, "the consumer has ended"
            if line.startswith("number"):
                seen.append(int(line.split()[1]))
        wait_until(lambda: f"message {DAMAGED} of queue 0 of topic 'TopicA'" in node.log)
        node.stop()
        node.flip()
        (node.store / "damage.json").unlink()
        node.start()
        while len(seen) < COUNT:
            line = consumer.stdout.readline()
            assert line, "the consumer has ended"
            if line.startswith("number"):
                seen.append(int(line.split()[1]))
        assert set(seen[:DAMAGED]) == {*range(DAMAGED)}
        assert set(seen) == {*range(COUNT)}
    finally:
        consumer.kill()
        node.stop()
