"""A stream whose workers, driver and masters are killed: nothing is lost, repeats are known."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tandem
from tandem.spark.sink.committed import GROUP_PREFIX
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.paths import ROOT

PROGRAM = Path(__file__).with_name("stream_program.py")
LINES = 300
FILES_OF_BATCH = 2
ROUNDS = int(os.environ.get("SINK_ROUNDS", "12"))
SECONDS = 150.0


class Driver:
    """The program, and what it has started."""

    def __init__(self, cluster: RunningCluster, topic: str, folder: Path, skip: str) -> None:
        self.folder = folder
        self._skip = skip
        self._command = [sys.executable, "-P", str(PROGRAM), ";".join(cluster.name_servers), topic]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*self._command, str(self.folder), self._skip],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def kill(self) -> None:
        """End driver, JVM and workers at once; then start the query from its checkpoint."""
        self.end()
        self.process = self._start()

    def end(self) -> None:
        """End them, wherever they are: workers have a process group of their own."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def kill_workers(self) -> int:
        """End the Python processes in which tasks run; return how many."""
        daemons = [
            pid for pid in descendants(self.process.pid) if b"pyspark.daemon" in command_of(pid)
        ]
        # A daemon forks a process for each task; without it there is no other one.
        found = [pid for pid in daemons if parent_of(pid) in daemons]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children[parent_of(int(entry.name))].append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found += children[todo[-1]]
        todo += children[todo.pop()]
    return found


def wait(seconds: float, condition: "Callable[[], object]") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def read(cluster: RunningCluster, topic: str) -> "list[tuple[str, bytes]]":
    with tandem.BlockingPullConsumer(cluster.name_servers, group="judge") as consumer:
        return [
            (each.properties["UNIQ_KEY"], each.body)
            for each in consumer.messages(topic, until_end=True)
        ]


def query_groups(cluster: RunningCluster) -> list[str]:
    """The groups that have the number of written micro-batches of a query."""
    with tandem.BlockingAdmin(cluster.access) as admin:
        names = [each.group for each in admin.consumer_groups()]
    return [each for each in names if each.startswith(GROUP_PREFIX)]


class Input:
    """The files that the stream reads, and what is in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self.rows: list[bytes] = []
        folder.mkdir()

    def add_file(self) -> None:
        name = f"{self._files:05}"
        self._files += 1
        lines = [f"{name} {line:05} {'x' * 100}" for line in range(LINES)]
        self.rows += [line.encode() for line in lines]
        hidden = self._folder / f"_{name}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._folder / f"{name}.txt")


class Fire:
    """What is done to a stream."""

    def __init__(self, cluster: RunningCluster, topic: str, driver: Driver) -> None:
        self._cluster = cluster
        self._topic = topic
        self._driver = driver
        self._dice = random.Random(1)
        self.done: Counter[str] = Counter()

    def kill(self, what: str) -> None:
        if what == "driver":
            time.sleep(self._dice.uniform(0.3, 4.0))
            self._driver.kill()
            count = len(read(self._cluster, self._topic))
            wait(SECONDS, lambda: len(read(self._cluster, self._topic)) > count)
        elif what == "master":
            time.sleep(self._dice.uniform(0.0, 1.0))
            killed = self._cluster.kill_master()
            self._cluster.wait_for_master(other_than=killed)
            self._cluster.start(killed)
        else:
            wait(SECONDS, self._driver.kill_workers)
        self.done[what] += 1


@pytest.fixture
def fenced_cluster(tmp_path: Path) -> "Iterator[RunningCluster]":
    (tmp_path / "cluster").mkdir()
    with running_fenced_cluster(tmp_path / "cluster") as running:
        yield running


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("skip_committed", ["false", "true"])
def test_nothing_is_lost_and_repeats_have_the_same_keys(
    fenced_cluster: RunningCluster, tmp_path: Path, skip_committed: str
) -> None:
    cluster, topic = fenced_cluster, "SinkUnderFire"
    with tandem.BlockingAdmin(cluster.access) as admin:
        admin.create_topic(topic, queue_nums=4)
    files = Input(tmp_path / "in")
    files.add_file()
    driver = Driver(cluster, topic, tmp_path, skip_committed)
    fire = Fire(cluster, topic, driver)
    try:
        wait(SECONDS, lambda: read(cluster, topic))
        for turn in range(ROUNDS):
            for _ in range(6):
                files.add_file()
            fire.kill(("workers", "master", "workers", "driver")[turn % 4])
            assert driver.process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        files.add_file()
        (tmp_path / "stop").touch()
        assert driver.process.wait(SECONDS) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        driver.end()
    by_key: dict[str, set[bytes]] = defaultdict(set)
    found = read(cluster, topic)
    for key, body in found:
        by_key[key].add(body)
    assert all(len(bodies) == 1 for bodies in by_key.values()), "a key of two rows"
    assert sorted(body for bodies in by_key.values() for body in bodies) == sorted(files.rows)
    if skip_committed == "true":
        # What is made again is at most the batch that a kill has hit, once for each kill.
        assert len(found) - len(files.rows) <= fire.done.total() * FILES_OF_BATCH * LINES
        assert query_groups(cluster), "no number of written batches"
    else:
        assert len(found) > len(files.rows), f"nothing was repeated: {fire.done}"
    assert set(fire.done) == {"workers", "master", "driver"}
