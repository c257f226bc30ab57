"""RocketMQ 5.3.3's DefaultMQPushConsumer: messages that fail, dead letters, and order."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tests.compat.conftest import RunJava

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

TOPIC: Final = "TopicGroup"
FIRST: Final = [f"{number}/0/{TOPIC}" for number in range(5)]
AGAIN: Final = [f"{number}/{times}/{TOPIC}" for number in (0, 1, 2, 4) for times in (1, 2)]

Running = AbstractContextManager[RunningCluster]


def classic(directory: Path) -> Running:
    return running_cluster(directory, slaves_count=1)


@pytest.mark.parametrize("run", [classic, running_fenced_cluster])
def test_what_a_consumer_cannot_handle_comes_back_and_order_is_kept(
    tmp_path: Path, run_java: RunJava, run: Callable[[Path], Running]
) -> None:
    """Each comes back with its delay until it is handled; what is given up is a dead letter."""
    with run(tmp_path) as cluster:
        name_servers = ";".join(f"{node.address}:9876" for node in cluster.spec.nodes)
        lines = run_java("GroupProbe", name_servers, TOPIC).splitlines()
    assert lines == [
        f"retry {' '.join(sorted(FIRST + AGAIN))}",
        f"dead 3/{TOPIC}",
        "ordered 0 1 2 2 3 4",
    ]
