"""How soon unchanged clients send again after their master is gone: run by hand, minutes a row.

    python -P -m tests.compat.failover_times --rounds 5 --event kill --world one

Each world is a cluster of its own, with all clients beside it at once: Java 5.3.3, Java 4.9.8 and
Go, each with its defaults, and Java that looks for routes every second. Each sends one message
after the other, 10 ms apart. A number is the longest time between two SEND_OK around the event.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

import tandem
from tandem.client import BlockingAdmin, ClientError
from tandem.cluster.detached import up_for_block
from tandem.cluster.spec import read_spec
from tandem.testing import GROUP, RunningCluster, write_cluster_file
from tandem.wire.ha_status import FencedCommand, FencedStatus
from tests.compat.programs import JAVA, NotToBeHadError, classpath, fetch, java_command
from tests.support.patience import wait_until

EVENTS: Final = ("kill", "restart", "freeze", "promote")
WORLDS: Final = ("one", "two", "address")
"""One fenced group; two of them; one with a master address."""

QUIET_SECONDS: Final = 3.0
"""A client is over it when its sends have been SEND_OK for so long."""

ROUND_SECONDS_MAX: Final = 75.0
NAME_SERVER_PORT: Final = 9876
TOPIC: Final = "TopicFailover"
SECOND_GROUP: Final = "broker-b"


def main() -> int:
    """Run rounds of one event in one world and print a row for every client."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.failover_times")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--event", choices=EVENTS, default="kill")
    parser.add_argument("--world", choices=WORLDS, default="one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        world = stack.enter_context(running_world(Path(directory), options.world))
        clients = start_clients(world, Path(directory), stack)
        for client in clients:
            wait_until(client.is_sending)
        gaps: dict[str, list[float]] = {client.name: [] for client in clients}
        for _ in range(options.rounds):
            # They look every 30 s, and we anywhere between.
            time.sleep(random.uniform(0, 30))  # noqa: TID251
            began = now_ms()
            repair = strike(world, options.event)
            wait_until_over_it(clients, began)
            for client in clients:
                gaps[client.name].append(client.longest_gap_seconds(began))
            _say(f"  {options.world} {options.event}: {_last(gaps)}")
            repair()
            world.wait_whole()
    for name, seconds in gaps.items():
        _say(
            f"{options.world} | {options.event} | {name} | median {statistics.median(seconds):.1f}"
            f" | worst {max(seconds):.1f} | {' '.join(f'{one:.1f}' for one in seconds)}"
        )
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _last(gaps: Mapping[str, list[float]]) -> str:
    return ", ".join(f"{name} {seconds[-1]:.1f} s" for name, seconds in gaps.items())


def now_ms() -> float:
    """The wall clock, which the programs print."""
    return time.time() * 1000  # noqa: TID251 - compared with what other processes say


# Clusters


class World:
    """A cluster whose first group loses its master."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster

    @property
    def name_servers(self) -> str:
        """All of them, as RocketMQ's programs take them."""
        nodes = self.cluster.spec.nodes
        return ";".join(f"{node.address}:{NAME_SERVER_PORT}" for node in nodes)

    def master(self, group: str = GROUP) -> FencedStatus | None:
        """Who takes messages in a group, as it says itself."""
        claims = []
        for node in self.cluster.spec.nodes:
            if node.group != group:
                continue
            try:
                with BlockingAdmin(self.cluster.name_servers) as admin:
                    status = admin.fenced_status(node.client_address)
            except ClientError:
                continue
            if status.role == "MASTER" and not status.refusal:
                claims.append(status)
        return max(claims, key=lambda status: status.epoch, default=None)

    def wait_whole(self) -> None:
        """Wait until every node is in sync."""

        def is_whole() -> bool:
            for group in {node.group for node in self.cluster.spec.nodes}:
                members = {node.name for node in self.cluster.spec.nodes if node.group == group}
                status = self.master(group)
                if status is None or set(status.isr) < members:
                    return False
            return True

        wait_until(is_whole)


@contextmanager
def running_world(directory: Path, kind: str) -> Iterator[World]:
    """Have a cluster up."""
    file = write_cluster_file(directory, 2, {}, kind="fenced")
    content: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    network = content["nodes"][0]["address"].rpartition(".")[0]
    if kind == "two":
        content["groups"][SECOND_GROUP] = {"kind": "fenced"}
        content["nodes"] += [
            {
                "name": f"{SECOND_GROUP}-{broker_id}",
                "group": SECOND_GROUP,
                "broker_id": broker_id,
                "address": f"{network}.{broker_id + 11}",
            }
            for broker_id in (1, 2, 3)
        ]
    if kind == "address":
        content["groups"][GROUP]["master_address"] = f"{network}.100:10911"
    file.write_bytes(msgspec.json.encode(content))
    spec = read_spec(file)
    with up_for_block(spec):
        world = World(RunningCluster(spec))
        world.wait_whole()
        with tandem.BlockingAdmin(world.cluster.name_servers) as admin:
            admin.create_topic(TOPIC)
        yield world


def strike(world: World, event: str) -> Callable[[], None]:
    """Take the master of the first group away; return what brings the node back."""
    status = world.master()
    assert status is not None
    cluster, name = world.cluster, status.node
    if event == "kill":
        cluster.kill(name)
        return lambda: cluster.start(name)
    if event == "restart":
        # As a service manager does with a process that died.
        cluster.kill(name)
        time.sleep(1)  # noqa: TID251
        cluster.start(name)
        return lambda: None
    if event == "freeze":
        cluster.freeze(name)
        return lambda: cluster.thaw(name)
    other = next(one for one in status.isr if one != name)
    with tandem.BlockingAdmin(cluster.access) as admin:
        address = cluster.spec.node(name).client_address
        result = admin.fenced_command(address, FencedCommand(command="promote", node=other))
    assert result.done, result.text
    return lambda: None


# Clients


class Client:
    """A program that sends, and the file it writes its lines to."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self._file = file

    def lines(self) -> list[tuple[float, str]]:
        """When each send ended, and how."""
        text = self._file.read_text(errors="replace")
        whole = text[: text.rfind("\n") + 1].splitlines()
        pairs = (line.partition(" ") for line in whole)
        return [(float(when), said) for when, _, said in pairs if when.isdigit()]

    def is_sending(self) -> bool:
        """Whether it has sent well for a while."""
        return len(self.lines()) > 100 and self.lines()[-1][1] == "SEND_OK"

    def is_over_it(self, began: float) -> bool:
        """Whether nothing has gone wrong of late, and something was sent."""
        recent = [said for when, said in self.lines() if when > now_ms() - QUIET_SECONDS * 1000]
        waited = now_ms() - began > 2 * QUIET_SECONDS * 1000
        return waited and len(recent) > 10 and all(said == "SEND_OK" for said in recent)

    def longest_gap_seconds(self, began: float) -> float:
        """The longest time between two SEND_OK, the last one before `began` included."""
        good = [when for when, said in self.lines() if said == "SEND_OK"]
        times = [
            *[when for when in good if when <= began][-1:],
            *(when for when in good if when > began),
            now_ms(),
        ]
        return max(after - before for before, after in pairwise(times)) / 1000


def wait_until_over_it(clients: list[Client], began: float) -> None:
    """Wait until all of them send again, or for as long as one should ever wait."""
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    while time.monotonic() < deadline:
        if all(client.is_over_it(began) for client in clients):
            return
        time.sleep(0.2)  # noqa: TID251


def start_clients(world: World, directory: Path, stack: ExitStack) -> list[Client]:
    """Start all of them; one that cannot be had is left out, in words."""
    source = str(JAVA / "FailoverProbe.java")
    clients: list[Client] = []
    for name, pom, poll_ms in (
        ("Java 5.3.3", "pom.xml", 0),
        ("Java 4.9.8", "client4.xml", 0),
        ("Java 5.3.3, looks every 1 s", "pom.xml", 1_000),
    ):
        home = directory / f"home-{len(clients)}"
        home.mkdir()
        command = java_command(classpath(pom), home, "-Drocketmq.client.logLevel=ERROR")
        arguments = [source, world.name_servers, TOPIC, str(poll_ms)]
        clients.append(_start(name, [*command, *arguments], home, stack))
    try:
        program = directory / "failover"
        fetch(["go", "build", "-o", str(program), "./failover"], cwd=JAVA.parent / "go")
    except (NotToBeHadError, OSError) as error:
        _say(f"without Go: {error}")
    else:
        command = [str(program), world.name_servers, TOPIC]
        clients.append(_start("Go 2.1.2", command, directory, stack))
    return clients


def _start(name: str, command: list[str], home: Path, stack: ExitStack) -> Client:
    file = home / "lines"
    out = stack.enter_context(file.open("w"))
    errors = stack.enter_context((home / "errors").open("w"))
    process = stack.enter_context(subprocess.Popen(command, stdout=out, stderr=errors, cwd=home))
    stack.callback(process.kill)
    return Client(name, file)


if __name__ == "__main__":
    sys.exit(main())
