"""The cluster of docs/security.md on three machines: its blocks are run as they are written there.

A machine is a network namespace and a directory of its own. The fourth is where the operator works
and the applications run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.faults.namespaces import Lan, lan
from tests.faults.real_group import check_logs_in
from tests.support.page_blocks import read_page
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT
from tests.tandem.coordinator.real_etcd import find_etcd, find_etcdctl

PAGE: Final = ROOT / "docs/security.md"
DONE_AS: Final = "tests/faults/test_three_machines.py does it, as "

NODES: Final = ("broker-a-0", "broker-a-1", "broker-a-2")
ADDRESSES: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
OPERATOR: Final = 3
"""The number of the machine where the operator works."""

SERVERS: Final = ";".join(f"{address}:9876" for address in ADDRESSES[:OPERATOR])
PORT: Final = 10911

LOOK_SECONDS: Final = 0.3
"""Between two commands that ask how it is: each is a process, which takes from the others."""


def block(name: str) -> str:
    """A block of the page, by the name that its mark gives it."""
    marked = [each for each in read_page(PAGE) if DONE_AS in each.marks.get("not run", "")]
    (found,) = [each for each in marked if each.marks["not run"].endswith(DONE_AS + name)]
    return found.text


def java_options() -> list[str]:
    """The properties of the JVM that the page gives to RocketMQ's clients."""
    (found,) = [each for each in read_page(PAGE) if each.text.startswith("-Dtls.enable")]
    return found.text.split()


class Application:
    """An application that runs, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path, errors: Path) -> None:
        self.process = process
        self._said = said
        self._errors = errors

    def lines(self) -> list[str]:
        """What it has said, whole lines only."""
        return self._said.read_text().rpartition("\n")[0].splitlines()

    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text()

    def keys(self, word: str) -> set[str]:
        """The keys of all lines with this word."""
        return {line.removeprefix(word + " ") for line in self.lines() if line.startswith(word)}

    def goes_on(self, count: int = 20) -> None:
        """Wait until it has sent and got so many more messages."""
        for word in ("sent", "got"):
            wanted = len(self.keys(word)) + count
            wait_until(lambda word=word, wanted=wanted: len(self.keys(word)) >= wanted)  # type: ignore[misc]
        assert self.process.poll() is None, self._errors.read_text()

    def wait_line(self, text: str) -> None:
        """Wait until it has said this."""
        wait_until(lambda: text in self.lines() or self.process.poll() is not None)
        assert text in self.lines(), self._errors.read_text()


class ThreeMachines:
    """The machines, their directories, and the processes that run on them."""

    def __init__(self, net: Lan, directory: Path, stack: ExitStack) -> None:
        self.net = net
        self.operator = directory / "operator"
        self.directories = [directory / f"machine-{number}" for number in range(len(NODES))]
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.secret_keys: dict[str, str] = {}
        self._directory = directory
        self._stack = stack
        self._etcd: dict[int, subprocess.Popen[bytes]] = {}
        programs = directory / "programs"
        programs.mkdir()
        for found in (find_etcd(), find_etcdctl()):
            (programs / found.name).symlink_to(found)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = ENVIRONMENT | {"PATH": path, "HOME": str(directory)}

    def set_up(self) -> None:
        """Do what the page says, from the file to the users."""
        self.operator.mkdir()
        for name in ("the file", "the secrets", "the copies"):
            self.run(block(name))
        for number, name in enumerate(NODES):
            shutil.move(self.operator / "to" / name, self.directories[number])
        for number in range(len(NODES)):
            self._etcd[number] = self._start(number, block("the etcd"), "etcd")
        wait_until(self._has_etcd)
        self.run(block("the users of etcd"))
        for number in range(len(NODES)):
            self.start_node(number)
        self.master()
        self._remember_keys(self.run(block("the users")))

    def run(self, script: str, *, machine: int = OPERATOR, directory: Path | None = None) -> str:
        """Run a script on a machine, which must succeed; return what it prints."""
        done = subprocess.run(
            self.net.command(machine, "bash", "-ec", script),
            cwd=directory or self._at(machine),
            env=self._environment | self._of(machine),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def create_user(self, name: str, *entries: str) -> None:
        """Make a user with a certificate, and with these rights."""
        self._remember_keys(self.run(f"tandem user create {name}"))
        for entry in entries:
            self.run(f"tandem acl grant {name} {entry}")
        self.run(f"tandem cluster certificates --client {name}")

    def start_node(self, number: int) -> None:
        """Start the node of a machine, as the page says."""
        self.nodes[number] = self._start(number, block("the node"), "node")

    def application(self, what: str, user: str, *more: str, machine: int = OPERATOR) -> Application:
        """Start an application of a user."""
        own = (SERVERS, str(self.operator / "tls"), user, self.secret_keys[user])
        program = (sys.executable, "-P", "-m", "tests.faults.shop", what, *own, *more)
        return self.start_program(f"{what}-{user}-{machine}", *program, machine=machine)

    def start_program(self, name: str, *words: str, machine: int = OPERATOR) -> Application:
        """Start a program; what it says goes to files."""
        said, errors = (self._directory / f"{name}.{kind}" for kind in ("out", "err"))
        with said.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                self.net.command(machine, *words),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=self.operator,
                env=self._environment,
            )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return Application(process, said, errors)

    def status(self, machine: int = OPERATOR) -> dict[str, object]:
        """What `tandem ha status` says of the group, to an operator at that machine."""
        done = subprocess.run(
            self.net.command(machine, "tandem", "ha", "status", "--format", "json"),
            cwd=self.operator,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if not done.stdout:
            return {"takes_messages": False, "master": "", "in_sync": [], "nodes": []}
        (group,) = json.loads(done.stdout)["groups"]
        return dict(group)

    def master(self, *, not_this: int = -1) -> int:
        """Wait until a node takes messages; return the number of its machine."""
        names = {name for number, name in enumerate(NODES) if number != not_this}
        status = self.wait_status(lambda each: each["takes_messages"] and each["master"] in names)
        return NODES.index(str(status["master"]))

    def becomes_whole(self) -> None:
        """Wait until all nodes are in sync."""
        self.wait_status(lambda status: status["in_sync"] == list(NODES))

    def wait_status(
        self, holds: Callable[[dict[str, object]], object], *, machine: int = OPERATOR
    ) -> dict[str, object]:
        """Wait until something holds of what an operator at a machine sees; return all of that."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(status := self.status(machine)):
            assert time.monotonic() < deadline, status
            time.sleep(LOOK_SECONDS)
        return status

    def certificate(self, number: int, port: int = PORT) -> str:
        """The certificate that a machine shows at a port, as its CA has signed it."""
        shown = self.run(
            f"openssl s_client -connect {ADDRESSES[number]}:{port} -CAfile tls/ca.pem"
            " -cert tls/client.pem -key tls/client.key -verify_return_error < /dev/null"
            " | openssl x509"
        )
        return shown.strip()

    def connections(self, number: int) -> set[str]:
        """The ends of all connections to a node that are open on the operator's machine."""
        found = self.run(f"ss -Htn state established dst {ADDRESSES[number]} dport = :{PORT}")
        return {line.split()[2] for line in found.splitlines()}

    def stop(self) -> None:
        """End the nodes in an orderly way, then everything else."""
        for process in self.nodes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.nodes.values():
            process.wait(PATIENCE_SECONDS)

    def check_logs(self, acked: set[str], sent: set[str]) -> None:
        """Every log is sound, has all that was acknowledged, and is as the others are."""
        directories = {
            name: self.directories[number] / "data" / name for number, name in enumerate(NODES)
        }
        check_logs_in(directories, acked, sent)

    def _at(self, machine: int) -> Path:
        return self.operator if machine >= OPERATOR else self.directories[machine]

    def _of(self, machine: int) -> dict[str, str]:
        if machine >= OPERATOR:
            return {}
        return {"NODE": NODES[machine], "ADDRESS": ADDRESSES[machine]}

    def _start(self, machine: int, script: str, name: str) -> subprocess.Popen[bytes]:
        with (self._at(machine) / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.net.command(machine, "bash", "-ec", script),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._at(machine),
                env=self._environment | self._of(machine),
            )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def _has_etcd(self) -> bool:
        done = subprocess.run(
            self.net.command(
                OPERATOR,
                *("etcdctl", "--cacert", "tls/ca.pem", "endpoint", "health"),
                *("--endpoints", ",".join(f"https://{each}:2379" for each in ADDRESSES[:OPERATOR])),
            ),
            cwd=self.operator,
            env=self._environment | {"ETCDCTL_API": "3"},
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.returncode == 0

    def _remember_keys(self, printed: str) -> None:
        lines = [line.partition(": ") for line in printed.splitlines()]
        users = [value for key, _, value in lines if key == "accessKey"]
        secrets = [value for key, _, value in lines if key == "secretKey"]
        self.secret_keys |= dict(zip(users, secrets, strict=True))


@contextmanager
def three_machines(directory: Path) -> Iterator[ThreeMachines]:
    """The machines, set up as the page says, as long as the block."""
    with lan(ADDRESSES) as net, ExitStack() as stack:
        world = ThreeMachines(net, directory, stack)
        world.set_up()
        yield world
