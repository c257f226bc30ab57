"""A cluster of real processes to be attacked, and everything that shows that it suffered.

Two groups and the embedded coordinator: `f`, fenced, of three nodes, and `c`, classic, of a master
and two slaves. The last node of each is stopped, so that an attacker can take its place on the
links without taking a place that a message needs.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tandem.client import BlockingAdmin, ClientError
from tandem.cluster.control import Request, send_request
from tandem.cluster.detached import up_for_block
from tandem.cluster.spec import ClusterSpec, read_spec
from tests.support.loopback import own_network
from tests.support.processes import ENVIRONMENT

RSS_GROWTH_BYTES_MAX: Final = 256 << 20
"""How much more memory of its own a process may have than at the start. What is mapped from files
does not count. It is room for 16 connections with a frame of 16 MiB each, half received."""

WAIT_SECONDS_MAX: Final = 1.0
"""How long a message of the canary may take, sending and pulling."""

READY_SECONDS_MAX: Final = 150.0

FENCED: Final = "f"
CLASSIC: Final = "c"
IMPOSTOR_FENCED: Final = "f-3"
IMPOSTOR_CLASSIC: Final = "c-2"
SECRET: Final = "no secret, but long enough"


class World:
    """The cluster, and what was seen of it."""

    def __init__(self, spec: ClusterSpec, supervisor_pid: int) -> None:
        self.spec = spec
        self.supervisor_pid = supervisor_pid
        self.network = spec.node("f-1").client_address.rpartition(".")[0]
        self._log_positions: dict[str, int] = {}
        self._pids: dict[str, int] = {"supervisor": supervisor_pid}
        self._rss_at_start: dict[str, int] = {}
        self.rss_growth_bytes: dict[str, int] = {}
        self.canary: CanaryWatch

    @property
    def coordinator(self) -> tuple[str, int]:
        """Where the embedded coordinator listens."""
        return self.spec.coordinator.address, self.spec.coordinator.port

    def is_running(self, name: str) -> bool:
        """Whether a node was left running."""
        return name not in (IMPOSTOR_FENCED, IMPOSTOR_CLASSIC)

    def running_nodes(self, group: str = "") -> list[str]:
        """Names of the nodes that serve."""
        return [
            node.name
            for node in self.spec.nodes
            if self.is_running(node.name) and group in ("", node.group)
        ]

    def address(self, name: str) -> str:
        """The IP address of a node."""
        return self.spec.node(name).client_address.rpartition(":")[0]

    def fenced_master(self) -> str:
        """The node that is master of the fenced group; empty if there is none."""
        with BlockingAdmin(self.spec.name_servers) as admin:
            for name in self.running_nodes(FENCED):
                try:
                    status = admin.fenced_status(self.spec.node(name).client_address)
                except ClientError:
                    continue
                if status.role == "MASTER" and not status.refusal:
                    return name
        return ""

    def watch_processes(self) -> None:
        """Learn who is there; what they have now is where they begin."""
        reply = send_request(self.spec.file, Request("status"))
        self._pids = {"supervisor": self.supervisor_pid} | {
            node.name: node.pid for node in reply.nodes if node.pid is not None
        }
        self._rss_at_start = {name: rss_bytes(pid) for name, pid in self._pids.items()}
        self.new_log_lines()

    def dead(self) -> list[str]:
        """Processes that have ended."""
        return [name for name, pid in self._pids.items() if not is_alive(pid)]

    def too_large(self) -> list[str]:
        """Processes that have more memory than they may."""
        found = []
        for name, pid in self._pids.items():
            growth = rss_bytes(pid) - self._rss_at_start[name]
            self.rss_growth_bytes[name] = max(growth, self.rss_growth_bytes.get(name, 0))
            if growth > RSS_GROWTH_BYTES_MAX:
                found.append(f"{name} has {growth >> 20} MiB more than at the start")
        return found

    def new_log_lines(self) -> list[str]:
        """What the logs say of bugs since the last call: the last line of each traceback."""
        found = []
        for file in sorted(self.spec.log_directory.glob("*.log")):
            position = self._log_positions.get(file.name, 0)
            size = file.stat().st_size
            if size < position:
                position = 0
            with file.open("rb") as log:
                log.seek(position)
                data = log.read()
            self._log_positions[file.name] = position + len(data)
            if b"Traceback" in data or b": a bug" in data:
                found += [
                    f"{file.stem}: {line}" for line in _troubles(data.decode(errors="replace"))
                ]
        return found


def _troubles(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        words = line.removeprefix("| ")
        if ": a bug" in line:
            yield line[:300]
        elif "Traceback (most recent call last)" in line:
            inside = True
        elif inside and words and not words.startswith((" ", "|", "+")):
            yield words[:300]
            inside = False


class CanaryWatch:
    """The canary's process, and the longest it has waited since the last look."""

    def __init__(self, groups: dict[str, list[str]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.canary", json.dumps(groups)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._groups = list(groups)
        self._last = time.monotonic()
        self._longest: tuple[float, str] = (0.0, "")
        self.rounds = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self._last = time.monotonic()
            self.rounds += 1
            words = f"group {said['group']}: {said['seconds']:.2f} s {said['trouble']}"
            self._longest = max(self._longest, (said["seconds"], words))

    def longest(self) -> tuple[float, str]:
        """The longest wait since `forget`, one that goes on included, and what is known of it."""
        silence = time.monotonic() - self._last
        return max(self._longest, (silence, f"a message under way for {silence:.2f} s"))

    def forget(self) -> None:
        """Begin anew."""
        self._longest = (0.0, "")

    def wait_well(self, seconds_max: float) -> bool:
        """Wait for a few quick rounds in a row."""
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            self.forget()
            rounds = self.rounds
            time.sleep(1.0)
            if self.rounds > rounds and self.longest()[0] < WAIT_SECONDS_MAX / 2:
                return True
        return False

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as stat:
            return stat.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def rss_bytes(pid: int) -> int:
    """Memory of its own, without what is mapped from files."""
    try:
        with Path(f"/proc/{pid}/status").open("rb") as status:
            for line in status:
                if line.startswith(b"RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


@contextmanager
def attacked_cluster(directory: Path) -> Iterator[World]:
    """Have it up while the block runs, with the canary, all in sync at the start."""
    spec = read_spec(_write_cluster_file(directory))
    with up_for_block(spec) as reply:
        world = World(spec, reply.pid)
        _until(lambda: world.fenced_master() != "", "the fenced group has a master")
        for name in (IMPOSTOR_FENCED, IMPOSTOR_CLASSIC):
            send_request(spec.file, Request("stop", name))
        groups = {
            group: [node.client_address for node in spec.nodes if node.group == group]
            for group in (FENCED, CLASSIC)
        }
        world.canary = CanaryWatch(groups)
        try:
            if not world.canary.wait_well(READY_SECONDS_MAX):
                raise TimeoutError(f"the canary: {world.canary.longest()[1]}")
            world.watch_processes()
            world.canary.forget()
            yield world
        finally:
            world.canary.close()


def _until(holds: Any, what: str) -> None:  # noqa: ANN401 - a condition
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not in {READY_SECONDS_MAX:g} s")
        time.sleep(0.1)


def _write_cluster_file(directory: Path) -> Path:
    network = own_network()
    (directory / "secret").write_text(SECRET)
    (directory / "secret").chmod(0o600)
    nodes = [
        {"name": f"{FENCED}-{n}", "group": FENCED, "broker_id": n, "address": f"{network}.{n}"}
        for n in (1, 2, 3)
    ] + [
        {
            "name": f"{CLASSIC}-{n}",
            "group": CLASSIC,
            "broker_id": n,
            "address": f"{network}.{10 + n}",
        }
        for n in (0, 1, 2)
    ]
    content = {
        "cluster": {"secret_file": "secret"},
        "coordinator": {"address": f"{network}.254"},
        "groups": {
            FENCED: {"kind": "fenced", "min_isr": 2},
            CLASSIC: {"kind": "classic", "broker_role": "SYNC_MASTER"},
        },
        "store": {
            "mapped_file_size_commit_log_bytes": 16_777_216,
            "mapped_file_size_consume_queue_bytes": 20_000,
            "max_message_size_bytes": 65_536,
        },
        "replication": {"in_sync_replicas": 1},
        "broker": {"stop_grace_ms": 500, "enable_property_filter": True, "grpc_enable": True},
        "logging": {"rotate_bytes": 1 << 30},
        "nodes": nodes,
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return file
