"""The plugin as a user has it: found by itself, in a pytest of its own, in a folder of its own."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cluster.errors import NodeStartError, OrderRefusedError
from tandem.cluster.private_disks import PrivateDisksError
from tandem.testing import RunningCluster, start
from tandem.testing.plugin import MakeTandemCluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT, processes_with, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PYTEST = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider"]


def run_pytest(directory: Path, program: str, *options: str) -> str:
    """Run a file of tests, which must pass; return what pytest says."""
    (directory / "test_orders.py").write_text(program)
    done = subprocess.run(
        [*PYTEST, "--basetemp", str(directory / "base"), *options],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 2,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


USER_VIEW = """
import asyncio

import pytest
import tandem


def send(cluster, topic):
    with tandem.BlockingProducer(cluster.name_servers, group="test") as producer:
        return producer.send(tandem.Message(topic, b"one")).status


def test_plain(tandem_node):
    send(tandem_node, "orders")


def test_fenced(tandem_fenced_cluster):
    tandem_fenced_cluster.kill_master()
    assert send(tandem_fenced_cluster, "orders") is tandem.SendStatus.SEND_OK


@pytest.mark.parametrize("number", range(2))
def test_shared(tandem_session_node, number):
    topic = tandem_session_node.topic()
    send(tandem_session_node, topic)
    with tandem.BlockingPullConsumer(tandem_session_node.name_servers, group="test") as consumer:
        assert len(list(consumer.messages(topic, until_end=True))) == 1


def test_asyncio_without_a_plugin_for_it(tandem_cluster):
    async def main():
        async with tandem.Producer(tandem_cluster.name_servers, group="test") as producer:
            return await producer.send(tandem.Message("orders", b"one"))

    assert asyncio.run(main()).status is tandem.SendStatus.SEND_OK


@pytest.mark.trio
async def test_trio(tandem_cluster):
    async with tandem.Producer(tandem_cluster.name_servers, group="test") as producer:
        await producer.send(tandem.Message("orders", b"one"))
"""


@pytest.mark.long  # the page about testing does the same, one test after the other
def test_a_folder_with_tests_and_nothing_else_passes_side_by_side(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, USER_VIEW, "-p", "xdist", "-n", "4", "-p", "no:hypothesispytest")
    assert re.search(r"\b6 passed", said), said
    assert processes_with(str(tmp_path)) == []


def test_it_needs_no_other_plugin(tmp_path: Path) -> None:
    program = "def test_it(tandem_node):\n    assert tandem_node.master() == 'broker-a-0'\n"
    # Those that come by entry points, but ours: it alone is named.
    environment_of_none = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (tmp_path / "test_it.py").write_text(program)
    done = subprocess.run(
        [*PYTEST, "-p", "tandem.testing.plugin", "-W", "error"],
        cwd=tmp_path,
        env={**ENVIRONMENT, **environment_of_none},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_does_not_use_it_imports_next_to_nothing(tmp_path: Path) -> None:
    program = """
import sys

def test_it():
    ours = {name for name in sys.modules if name.startswith(("tandem", "node", "store"))}
    assert ours == {"tandem", "tandem.testing", "tandem.testing.plugin"}
    assert not {"trio", "numpy", "msgspec", "yaml"} & set(sys.modules)
"""
    # Other plugins import trio.
    run_pytest(tmp_path, program, "-p", "no:trio", "-p", "no:anyio", "-p", "no:hypothesispytest")


HANGS = """
import os, time

def test_it(tandem_fenced_cluster):
    cluster = tandem_fenced_cluster
    cluster.freeze(cluster.nodes[0])
    cluster.partition(cluster.nodes[1])
    pids = [node.pid for node in cluster.status()]
    print("UP", flush=True)
    time.sleep(3600)
"""


def test_nothing_is_left_of_a_test_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    session = tmp_path / "base"
    with started(
        [
            *PYTEST,
            "-s",
            "--rootdir",
            str(tmp_path),
            "--basetemp",
            str(session),
            str(tmp_path / "test_it.py"),
        ]
    ) as process:
        wait_output(process, "UP")
        children = descendants(process.pid)
        # Fork server, supervisor with its own, proxies, three nodes.
        assert len(children) == 7
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not [pid for pid in children if is_alive(pid)])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def descendants(pid: int) -> list[int]:
    """All processes that come from this one and live."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(path.name)] = int(fields[1])
    found = {pid}
    while fresh := {child for child, parent in parents.items() if parent in found} - found:
        found |= fresh
    return sorted(found - {pid})


def test_a_test_that_needs_small_disks_is_skipped_where_there_can_be_none(
    make_tandem_cluster: MakeTandemCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OrderRefusedError("a tmpfs: not permitted", PrivateDisksError.__name__)

    monkeypatch.setattr(start, "running_group", refuse)
    with pytest.raises(pytest.skip.Exception, match="a tmpfs: not permitted"):
        make_tandem_cluster(nodes=1, disk_mib=8)


def test_other_errors_are_errors(
    make_tandem_cluster: MakeTandemCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OrderRefusedError("broker-a-0 did not start", NodeStartError.__name__)

    monkeypatch.setattr(start, "running_group", refuse)
    with pytest.raises(OrderRefusedError):
        make_tandem_cluster(nodes=1)


def test_a_test_may_have_several_clusters(
    make_tandem_cluster: MakeTandemCluster, tandem_node: RunningCluster
) -> None:
    other = make_tandem_cluster(
        nodes=1, fenced=True, settings={"broker": {"auto_create_topic_enable": False}}
    )
    assert other.is_fenced
    assert other.master() == "broker-a-1"
    assert not other.spec.broker.auto_create_topic_enable
    assert not set(other.name_servers) & set(tandem_node.name_servers)
