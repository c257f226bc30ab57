"""Users of a cluster as RocketMQ's own programs. The table has what one user does alone."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from subprocess import Popen
from threading import Event, Thread  # noqa: TID251 - reads what another process prints, and sends
from typing import Final

import pytest

import tandem
from tandem.client import BlockingAdmin, BlockingPullConsumer, ClusterAccess
from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tests.compat.conftest import StartJava
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

AUTHORIZED: Final = {"security": {"clients": "authorized"}}
SHOP, BANK = ("shop", "a secret of the shop"), ("bank", "a secret of the bank")
AT_FIRST: Final = ["sent", "consumed", *["refused 16"] * 3]
END_SECONDS_MAX: Final = 1.0
GOES_ON_SECONDS: Final = 3.0


def make_applications(admin: BlockingAdmin) -> None:
    """Make two users, each with a topic and a group that the other may not use."""
    for (name, secret), topic in ((SHOP, "shop-orders"), (BANK, "bank-orders")):
        admin.create_user(name, secret)
        rights = [
            PolicyEntryInfo(f"Topic:{topic}", ["Pub", "Sub"], None, "Allow"),
            PolicyEntryInfo(f"Group:{name}", ["Sub"], None, "Allow"),
        ]
        admin.grant(name, rights)
        admin.create_topic(topic, queue_nums=1)


def start_applications(
    cluster: RunningCluster, start_java: StartJava
) -> tuple[Popen[str], Popen[str]]:
    """Start both, and see that each has its own and is refused the other's."""
    servers = ";".join(cluster.name_servers)
    shop, bank = ("shop-orders", "shop"), ("bank-orders", "bank")
    probes = (
        start_java("UserProbe", servers, *SHOP, *shop, *bank),
        start_java("UserProbe", servers, *BANK, *bank, *shop),
    )
    for probe in probes:
        assert [said(probe) for _ in AT_FIRST] == AT_FIRST
    return probes


def said(probe: Popen[str]) -> str:
    assert probe.stdout is not None
    return probe.stdout.readline().strip()


def send(probe: Popen[str]) -> str:
    """Have a probe send a message; return what it says of that, its own arrivals passed over."""
    assert probe.stdin is not None
    probe.stdin.write(".")
    probe.stdin.flush()
    while (line := said(probe)).startswith("got"):
        pass
    return line


def test_applications_may_their_own_topics_and_an_end_is_one_at_once(
    tmp_path: Path, start_java: StartJava
) -> None:
    with (
        running_fenced_cluster(tmp_path, settings=AUTHORIZED) as cluster,
        BlockingAdmin(cluster.access) as admin,
    ):
        make_applications(admin)
        shop, bank = start_applications(cluster, start_java)
        # A third program: Python, with the rights of the shop and no others.
        access = ClusterAccess(cluster.name_servers, *SHOP)
        with BlockingPullConsumer(access, group="shop") as consumer:
            assert len(consumer.fetch_message_queues("shop-orders")) == 1
        cluster.kill_master()
        cluster.wait_for_master()
        deadline = time.monotonic() + 60
        while send(bank) != "sent":
            assert time.monotonic() < deadline
        admin.alter_user("shop", is_enabled=False)
        assert send(shop).startswith("failed")
        assert send(bank) == "sent"


class Arrivals:
    """When a probe said of what it got, by the clock of this process."""

    def __init__(self, probe: Popen[str]) -> None:
        self._probe = probe
        self.times: list[float] = []
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := said(self._probe):
            if line.startswith("got"):
                self.times.append(time.monotonic())


@pytest.mark.parametrize("run", [running_cluster, running_fenced_cluster])
def test_who_is_disabled_receives_nothing_after_a_second_and_others_go_on(
    tmp_path: Path,
    start_java: StartJava,
    run: Callable[..., AbstractContextManager[RunningCluster]],
) -> None:
    with run(tmp_path, settings=AUTHORIZED) as cluster, BlockingAdmin(cluster.access) as admin:
        make_applications(admin)
        shop, bank = map(Arrivals, start_applications(cluster, start_java))
        is_over = Event()

        def send_to_both() -> None:
            with tandem.BlockingProducer(cluster.access, "both") as producer:
                while not is_over.wait(0.01):
                    for topic in ("shop-orders", "bank-orders"):
                        producer.send(tandem.Message(topic, b"%d" % time.monotonic_ns()))

        sending = Thread(target=send_to_both)
        sending.start()
        try:
            wait_until(lambda: min(len(shop.times), len(bank.times)) > 100)
            admin.alter_user("shop", is_enabled=False)
            disabled = time.monotonic()
            wait_until(lambda: bank.times[-1] > disabled + GOES_ON_SECONDS)
        finally:
            is_over.set()
            sending.join()
        assert disabled - GOES_ON_SECONDS < shop.times[-1] < disabled + END_SECONDS_MAX
        after = [each for each in bank.times if each > disabled]
        gaps = [later - earlier for earlier, later in pairwise(after)]
        assert max(gaps) < END_SECONDS_MAX
