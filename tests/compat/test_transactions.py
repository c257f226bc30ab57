"""RocketMQ 5.3.3's TransactionMQProducer, and a master that is killed in between."""

from pathlib import Path
from subprocess import Popen
from typing import Final

import pytest

from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tests.compat.conftest import StartJava

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

TOPIC: Final = "TopicTransactions"
OFTEN: Final = {"broker": {"transaction_check_interval_ms": 3_000, "transaction_timeout_ms": 3_000}}
SEEN: Final = ["ask0", "ask1", "ask2", "commit0", "commit1", "commit2", "late", "plain"]
ASKED: Final = ["ask0", "ask1", "ask2", "refuse0", "refuse1", "refuse2"]


def started(start_java: StartJava, cluster: RunningCluster) -> Popen[str]:
    """Start the probe; it waits, with one half open, when this returns."""
    name_servers = ";".join(f"{node.address}:9876" for node in cluster.spec.nodes)
    probe = start_java("TransactionProbe", name_servers, TOPIC)
    assert probe.stdout is not None
    assert probe.stdout.readline() == "half\n"
    return probe


def ended(probe: Popen[str]) -> dict[str, list[str]]:
    """Have it commit; return what was seen, and what was asked about."""
    said, _ = probe.communicate("\n", 200)
    return {line.split()[0]: line.split()[1:] for line in said.splitlines()}


def test_transactions_end_once_in_a_classic_group(tmp_path: Path, start_java: StartJava) -> None:
    with running_cluster(tmp_path, slaves_count=1, settings=OFTEN) as cluster:
        said = ended(started(start_java, cluster))
    assert said["seen"] == SEEN
    # One that was late is asked about beside its commit, if the machine is slow.
    assert set(said["asked"]) >= set(ASKED)


def test_a_transaction_that_is_open_while_the_master_is_killed_ends_once(
    tmp_path: Path, start_java: StartJava
) -> None:
    """The commit goes to the dead master or to the next one; otherwise that one asks."""
    with running_fenced_cluster(tmp_path, settings=OFTEN) as cluster:
        probe = started(start_java, cluster)
        killed = cluster.kill_master()
        cluster.wait_for_master(other_than=killed)
        cluster.start(killed)
        said = ended(probe)
    # A consumer may see what it had not committed yet again: at least once, and nothing else.
    assert sorted(set(said["seen"])) == SEEN
    assert said["seen"].count("late") == 1
    assert set(said["asked"]) >= set(ASKED)
