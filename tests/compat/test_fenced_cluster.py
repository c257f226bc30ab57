"""RocketMQ 5.3.3's clients and slaves beside a fenced group whose master changes."""

import secrets
import time
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

import pytest

import tandem
from tandem.testing import RunningCluster, running_fenced_cluster
from tandem.wire.ha_status import FencedCommand, FencedStatus
from tandem.wire.message import Host
from tests.compat.conftest import StartJava
from tests.compat.probe import Probe, Settings
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180), pytest.mark.xdist_group("rocketmq")]

COMMIT_LOG_BYTES: Final = 1_048_576
NAME_SERVER_PORT: Final = 9876
LEARNER_IP: Final = "127.0.0.1"
"""From here a RocketMQ slave dials: it does not bind, and the kernel takes this for 127.0.0.0/8."""

SERVICE_NOT_AVAILABLE: Final = "code 14 "
FAILURES: Final = (
    "code 10001 ",  # nobody listens at the address that the client knows
    "code 10003 ",  # the client's route has no master
    "code 10005 ",  # nor any queue to write to
    "code -1 ",  # the connection was lost before the answer
    SERVICE_NOT_AVAILABLE,
)
"""What ends a send whose tries were used up. Three tries of RocketMQ's take milliseconds."""
TOO_FEW_REPLICAS: Final = "code 1 "
"""A new master whose followers have not found it yet; with that reason."""


def statuses(cluster: RunningCluster, *names: str) -> list[FencedStatus]:
    """Ask these nodes for theirs."""
    with tandem.BlockingAdmin(cluster.name_servers) as admin:
        return [admin.fenced_status(cluster.spec.node(name).client_address) for name in names]


def name_servers(cluster: RunningCluster) -> str:
    """What RocketMQ's programs take.

    Not the client ports, which answer the same: a consumer that has asked one for routes, before
    it knows that a broker is there, sends no heartbeat on that connection for up to 30 s, and its
    pulls end with SUBSCRIPTION_NOT_EXIST if that broker becomes the master.
    """
    return ";".join(f"{node.address}:{NAME_SERVER_PORT}" for node in cluster.spec.nodes)


# Clients


def promote(cluster: RunningCluster, name: str) -> None:
    """Have an operator move the master, which goes on living."""
    order = FencedCommand(command="promote", node=name)
    with tandem.BlockingAdmin(cluster.access) as admin:
        address = cluster.spec.node(cluster.wait_for_master()).client_address
        result = admin.fenced_command(address, order)
    assert result.done, result.text


class Sends:
    """The lines of a `SwitchProbe`."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def read_until_ok(self, count: int, *, after_ms: float = 0) -> list[str]:
        """Read until so many sends were SEND_OK; return what was said of those that were not.

        Counted are sends that began after that time of the wall clock: what was sent while nobody
        read is still in the pipe.
        """
        assert self._process.stdout is not None
        failed = []
        while count:
            line = self._process.stdout.readline()
            began, _took, said = line.split(" ", 2)
            if said == "SEND_OK\n":
                count -= int(began) > after_ms
            else:
                failed.append(said)
        return failed

    def end(self) -> list[str]:
        """Stop sending; return the lines that are no sends."""
        said, _ = self._process.communicate("\n", 100)
        return [line for line in said.splitlines() if not line[0].isdigit()]


def expect_known(failed: list[str]) -> None:
    """Expect that nothing else went wrong than a change of master explains."""
    others = [said for said in failed if not said.startswith(FAILURES)]
    assert all(s.startswith(TOO_FEW_REPLICAS) and "in sync" in s for s in others), others


def test_rocketmqs_clients_go_on_when_the_master_is_killed_and_when_it_is_moved(
    tmp_path: Path, start_java: StartJava
) -> None:
    """DefaultMQProducer and DefaultMQPushConsumer, which commits one-way, looking for routes often.

    By default they look every 30 s, and fail or pause for so long: nothing makes them look sooner.
    """
    with running_fenced_cluster(tmp_path) as cluster:
        probe = start_java("SwitchProbe", name_servers(cluster), "TopicJava", 1000)
        sends = Sends(probe)
        assert sends.read_until_ok(50) == []
        killed = cluster.kill_master()
        killed_at = time.monotonic()
        failed = sends.read_until_ok(50)
        assert time.monotonic() - killed_at < 30
        expect_known(failed)
        cluster.start(killed)
        cluster.wait_in_sync()
        survivor = cluster.wait_for_master()
        moved_ms = time.time() * 1000  # noqa: TID251 - compared with what Java says
        promote(cluster, killed)
        cluster.wait_for_master(other_than=survivor)
        failed = sends.read_until_ok(300, after_ms=moved_ms)
        expect_known(failed)
        assert any(said.startswith(SERVICE_NOT_AVAILABLE) for said in failed)
        consumed, committed = sends.end()
    assert consumed.endswith("missing []")
    assert committed == "not committed {}"


def test_rocketmqs_clients_with_their_defaults_go_on_at_once_at_the_master_address(
    tmp_path: Path, start_java: StartJava
) -> None:
    """They look for routes every 30 s, and dial an address that has closed with the next message.

    Twice, so that a look at the right moment cannot be what helped.
    """
    address = f"127.255.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}:10911"
    settings = {"groups": {"broker-a": {"kind": "fenced", "master_address": address}}}
    with running_fenced_cluster(tmp_path, settings=settings) as cluster:
        with tandem.BlockingAdmin(cluster.name_servers) as admin:
            admin.create_topic("TopicJava")
            addresses = admin.topic_route("TopicJava").broker_datas[0].broker_addrs
        assert addresses[0] == address
        sends = Sends(start_java("SwitchProbe", name_servers(cluster), "TopicJava", 30_000))
        sends.read_until_ok(50)
        for _ in range(2):
            killed = cluster.kill_master()
            killed_at = time.monotonic()
            expect_known(sends.read_until_ok(50, after_ms=time.time() * 1000))  # noqa: TID251
            assert time.monotonic() - killed_at < 10
            cluster.start(killed)
            cluster.wait_in_sync()
        consumed, committed = sends.end()
    assert consumed.endswith("missing []")
    assert committed == "not committed {}"


# Slaves


def log_bytes(directory: Path, end: int) -> bytes:
    """The first bytes of a log."""
    files = sorted((directory / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


def follow(rocketmq: Probe, slave: Path, cluster: RunningCluster, master: str) -> None:
    """Tell the slave the HA address of a node, as `haMasterAddress` or a name server does."""
    node = cluster.spec.node(master)
    rocketmq.follow(slave, Host(node.address, 10912))


def test_a_rocketmq_slave_copies_what_is_confirmed_from_one_master_after_the_other(
    tmp_path: Path, rocketmq: Probe
) -> None:
    """DefaultHAClient, as a learner: its log is at all times the beginning of the group's."""
    slave = tmp_path / "slave"
    learners = {"broker-a": {"kind": "fenced", "learners": [LEARNER_IP]}}
    with (
        running_fenced_cluster(tmp_path, settings={"groups": learners}) as cluster,
        tandem.BlockingProducer(cluster.name_servers, group="p") as producer,
    ):
        old = cluster.wait_for_master()
        others = [node.name for node in cluster.spec.nodes if node.name != old]
        settings = Settings(
            commit_log_bytes=COMMIT_LOG_BYTES, consume_queue_bytes=20_000, is_slave=True
        )
        assert rocketmq.open(slave, settings)
        follow(rocketmq, slave, cluster, old)
        for number in range(50):
            producer.send(tandem.Message("T", b"%d:" % number + bytes(1000)))
        wait_until(lambda: rocketmq.end(slave) == statuses(cluster, old)[0].log_end)

        for name in others:
            cluster.freeze(name)
        for _ in range(5):
            producer.send(tandem.Message("T", b"async"), ack=tandem.Ack.ASYNC)
        (status,) = statuses(cluster, old)
        assert status.confirm < status.log_end
        assert sorted(status.isr) == sorted([old, *others])
        time.sleep(1)  # noqa: TID251 - a test's own thread, not a node's
        assert rocketmq.end(slave) <= statuses(cluster, old)[0].confirm < status.log_end
        cluster.kill(old)
        for name in others:
            cluster.thaw(name)

        new = cluster.wait_for_master(other_than=old)
        follow(rocketmq, slave, cluster, new)
        for number in range(50):
            producer.send(tandem.Message("T", b"%d:" % number + bytes(1000)))
        wait_until(lambda: rocketmq.end(slave) == statuses(cluster, new)[0].log_end)
        cluster.start(old)
        cluster.wait_in_sync()
        assert sorted(statuses(cluster, new)[0].isr) == sorted([old, *others])
        end = rocketmq.end(slave)
        seen = rocketmq.look(slave)
        for name in (old, *others):
            directory = cluster.store_directory(name)
            assert log_bytes(directory, end) == log_bytes(slave, end), name
    assert sum(m.topic == "T" for m in seen.messages) >= 100
    rocketmq.close([slave])


class Broker:
    """What a `BrokerProbe` says of itself."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    @property
    def end(self) -> int:
        """Where its log ends."""
        return int(self._ask()[0])

    @property
    def master(self) -> str:
        """The client address of its master, as name servers told it."""
        return self._ask()[1]

    def _ask(self) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()


def knows_topic(slave: Path, topic: str) -> bool:
    """Whether a RocketMQ slave has it in its table of topics."""
    file = slave / "config" / "topics.json"
    return file.exists() and f'"topicName":"{topic}"' in file.read_text().replace(" ", "")


def test_a_rocketmq_broker_learns_from_name_servers_whom_to_follow(
    tmp_path: Path, start_java: StartJava, broker_classpath: str
) -> None:
    """BrokerController with brokerRole=SLAVE and no haMasterAddress: nobody has to tell it.

    It is in the route under its id. It asks for topics at the client port minus 2, 10 s after its
    start and then every minute, and writes them to its own file.
    """
    slave = tmp_path / "slave"
    settings: dict[str, dict[str, Any]] = {
        "groups": {"broker-a": {"kind": "fenced", "learners": [LEARNER_IP]}},
        "broker": {"vip_channel_enable": True},
    }
    with (
        running_fenced_cluster(tmp_path, settings=settings) as cluster,
        tandem.BlockingProducer(cluster.name_servers, group="p") as producer,
    ):
        names = [node.name for node in cluster.spec.nodes]
        old = cluster.wait_for_master()
        producer.send(tandem.Message("T", b"one"))
        servers, port = name_servers(cluster), 20_911
        place = ("DefaultCluster", "broker-a", 10, LEARNER_IP, port, slave, COMMIT_LOG_BYTES)
        broker = Broker(start_java("BrokerProbe", servers, *place, classpath=broker_classpath))
        wait_until(lambda: broker.end == statuses(cluster, old)[0].log_end)
        assert broker.master == cluster.spec.node(old).client_address
        wait_until(lambda: knows_topic(slave, "T"))

        cluster.kill(old)
        new = cluster.wait_for_master(other_than=old)
        producer.send(tandem.Message("T", b"two"))
        wait_until(lambda: broker.end == statuses(cluster, new)[0].log_end)
        assert broker.master == cluster.spec.node(new).client_address
        assert set(statuses(cluster, new)[0].isr) <= set(names)
        with tandem.BlockingAdmin(cluster.name_servers) as admin:
            route = admin.topic_route("T").broker_datas[0].broker_addrs
        assert route[10] == f"{LEARNER_IP}:{port}"
        end = broker.end
        assert log_bytes(slave, end) == log_bytes(cluster.store_directory(new), end)
