"""RocketMQ's push consumer in POP mode, while the master of a fenced group is killed."""

import time
from collections import Counter
from pathlib import Path
from subprocess import Popen
from threading import Thread  # noqa: TID251  reads a pipe while the test does other things
from typing import Final

import pytest

import tandem
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.compat.conftest import StartJava
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

NAME_SERVER_PORT: Final = 9876
INVISIBLE_SECONDS: Final = 10
"""What the probe asks for."""

COUNT: Final = 100


class Handled:
    """What a `PopProbe` has said: how often each message was handled."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process
        self.counts: Counter[str] = Counter()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.counts[line.split(" ")[0]] += 1

    def has(self, kind: str) -> bool:
        """Whether all messages of a kind were handled."""
        return sum(each.startswith(kind) for each in list(self.counts)) >= COUNT


def send(cluster: RunningCluster, topic: str, kind: str) -> None:
    with tandem.BlockingProducer(cluster.name_servers, "PG") as producer:
        for number in range(COUNT):
            result = producer.send(tandem.Message(topic, f"{kind}{number}".encode()))
            assert result.status is tandem.SendStatus.SEND_OK


def test_what_was_acknowledged_never_comes_again_and_nothing_is_lost(
    tmp_path: Path, start_java: StartJava
) -> None:
    with running_fenced_cluster(tmp_path) as cluster:
        topic = cluster.topic(queues=4)
        servers = ";".join(f"{node.address}:{NAME_SERVER_PORT}" for node in cluster.spec.nodes)
        master = cluster.spec.node(cluster.wait_for_master()).client_address
        send(cluster, topic, "before")
        probe = start_java("PopProbe", servers, topic, "PopGroup", master)
        handled = Handled(probe)
        wait_until(lambda: handled.has("before"))
        # The probe acknowledges asynchronously; then all of it is done for good.
        time.sleep(2)  # noqa: TID251  there is nothing to see
        before = handled.counts.copy()
        cluster.kill_master()
        cluster.wait_for_master()
        send(cluster, topic, "after")
        wait_until(lambda: handled.has("after"))
        time.sleep(2 * INVISIBLE_SECONDS)  # noqa: TID251  for what should not come
        again = {body for body, count in handled.counts.items() if count > before[body] > 0}
        assert again == set()
        assert len(handled.counts) == 2 * COUNT
        probe.communicate("\n", 60)
