"""RocketMQ 5.3.3's proxy in CLUSTER mode before our groups, and applications that know only it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tandem.client import BlockingAdmin
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.compat.programs import NotToBeHadError, classpath
from tests.compat.proxy import running_proxy
from tests.compat.proxy_scenarios import SERVED, probe_command, scenarios
from tests.compat.targets import TARGET_NAMES, TargetName, running_target
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(550), pytest.mark.xdist_group("rocketmq")]

TOPIC: Final = "TopicProxy"
WAYS: Final = ("remoting", "gRPC")
MARGIN_SECONDS: Final = 15


@pytest.fixture(scope="module")
def grpc_classpath() -> Iterator[str]:
    """The jars of both libraries of applications; skips where they cannot be fetched."""
    try:
        classpath("pom.xml", "proxy")
        yield classpath("pom.xml", "grpc")
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ's proxy cannot be fetched: {error}")


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_applications_behind_a_proxy(tmp_path: Path, grpc_classpath: str, name: TargetName) -> None:
    with (
        running_target(name, tmp_path) as target,
        running_proxy(tmp_path, target.name_servers) as proxy,
    ):
        said = scenarios(grpc_classpath, tmp_path, target.name_servers, proxy.addresses)
    assert {row: words for row, words in said.items() if words != "ok"} == {}
    assert set(said) == SERVED


class Sends:
    """The lines of a probe that sends by both ways."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def ok_ms(self, way: str) -> list[int]:
        """When the sends of one way were done that were OK, by the wall clock."""
        lines = [line.split(" ", 3) for line in self._file.read_text().splitlines()]
        mine = [line for line in lines if line[0] == way and line[3:] == ["OK"]]
        return [int(began) + int(took) for _way, began, took, _said in mine]

    def seconds_without(self, way: str) -> float:
        """The longest time between two of them."""
        times = sorted(self.ok_ms(way))
        gaps = (later - earlier for earlier, later in pairwise(times))
        return max(gaps) / 1000


def kill_the_master(cluster: RunningCluster, sends: Sends) -> dict[str, float]:
    """Kill it while applications send; return how long each way was without OK."""
    wait_until(lambda: all(len(sends.ok_ms(way)) > 50 for way in WAYS))
    killed = cluster.kill_master()
    killed_ms = time.time() * 1000  # noqa: TID251 - compared with what Java says
    cluster.wait_for_master(other_than=killed)
    wait_until(lambda: all(max(sends.ok_ms(way)) > killed_ms + 2_000 for way in WAYS))
    return {way: sends.seconds_without(way) for way in WAYS}


@pytest.mark.parametrize("refresh_seconds", [1, 20])
def test_producers_behind_a_proxy_go_on_when_the_master_is_killed(
    tmp_path: Path, grpc_classpath: str, refresh_seconds: int
) -> None:
    """It looks for routes every 20 s, or as `topicRouteServiceCacheRefreshSeconds` says."""
    home = tmp_path / "probe"
    with running_fenced_cluster(tmp_path) as cluster:
        with BlockingAdmin(cluster.name_servers) as admin:
            admin.create_topic(TOPIC, queue_nums=1)
        name_servers = ";".join(cluster.name_servers)
        settings = {"topicRouteServiceCacheRefreshSeconds": refresh_seconds}
        with running_proxy(tmp_path, name_servers, settings) as proxy:
            command = probe_command(grpc_classpath, home, "loop", proxy.remoting, proxy.grpc, TOPIC)
            with (
                (home / "said").open("w") as said,
                (home / "errors").open("w") as errors,
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=said, stderr=errors, cwd=home
                ) as process,
            ):
                try:
                    seconds = kill_the_master(cluster, Sends(home / "said"))
                finally:
                    process.kill()
    sys.stdout.write(
        f"seconds without OK, routes looked for every {refresh_seconds} s: {seconds}\n"
    )
    assert max(seconds.values()) < refresh_seconds + MARGIN_SECONDS, seconds
