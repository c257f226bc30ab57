"""A node that kills itself with SIGKILL at a named point, once it is told to.

    python -P -m tests.faults.killing_node POINT --config cluster.yaml --name broker-a-1

It is an ordinary node until the file `arm` appears beside its directory; the node that next comes
by the point removes that file and dies. Of several armed nodes so exactly one dies. The points are
reached through the seams of `run_node` where there are any, else by wrapping a method here, in
a process that exists for tests only.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ha.fenced.events import AckDecided, Elected, EpochAppended, HAEvent, IsrChanged, IsrChanging
from ha.fenced.in_sync_replicas import InSyncReplicas
from ha.fenced.replica_server import ReplicaServer
from node.__main__ import main
from node.remoting.connection import Outbox
from store.machine.disk import DiskFile
from store.machine.machine import Machine, this_machine
from store.machine.real_disk import RealDisk
from store.machine.real_file import RealFile
from store.messages.put_message import MessagePuts
from store.queue.consume_queue import ConsumeQueue
from store.recovery.truncation import TRUNCATION_FILE
from store.services.dispatch import ConsumeQueueDispatcher
from tandem.cluster_file.load import load_config
from tandem.coordinator.client import EtcdClient
from tandem.coordinator.interface import Compare, Delete, Put, TransactionResult

POINTS: Final = {
    "before-append": "a put was taken, nothing of it is in the log",
    "after-append": "a put is in the master's log and nowhere else",
    "sent-unacked": "replicas have a put, and none of their reports was read",
    "one-of-two-acks": "one of two replicas has acknowledged all there is",
    "all-acks": "every replica has acknowledged, nobody was answered",
    "answered": "an answer has just left",
    "isr-shrink": "a smaller in-sync set was recorded, and the master does not know",
    "isr-expand": "a larger in-sync set was recorded, and the master does not know",
    "epoch-file": "the epoch file is about to be replaced",
    "epoch-file-copy": "the epoch file was replaced, its second copy not",
    "cut-1": "the first step of cutting a log",
    "cut-2": "the second",
    "cut-4": "the fourth",
    "cut-7": "the seventh",
    "elected": "the coordinator says master, the epoch file does not know yet",
    "epoch-appended": "the epoch file knows, the node does not serve yet",
    "file-roll": "the next file of the log was made, and nobody knows",
    "mid-dispatch": "a slave has entered some of the log's messages in their queues",
    "checkpoint": "the checkpoint is about to be synced",
}
"""Every point, and what is true there."""


def arm_file(directory: Path) -> Path:
    """The file of a node with this directory, the same for all of a cluster."""
    return directory.parent / "arm"


GROUP_NODES: Final = 3
"""All of them are in sync when a test begins."""


class Trap:
    """Kills this process at one point, if it is armed."""

    def __init__(self, point: str, arm: Path) -> None:
        self._point = point
        self._arm = arm
        self._members = GROUP_NODES
        self._elected = False
        self._changing = ""
        self._answered = False

    def at(self, point: str) -> None:
        """This is `point`: die here if that is what is wanted."""
        if point != self._point:
            return
        try:
            self._arm.unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def on_event(self, event: HAEvent) -> None:
        """Look at what the replica has done."""
        match event:
            case AckDecided():
                self._answered = True
                self.at("all-acks")
            case Elected():
                self._elected = True
                self.at("elected")
            case EpochAppended() if self._elected:
                self.at("epoch-appended")
            case IsrChanging():
                grows = len(event.isr) > self._members
                self._changing = "isr-expand" if grows else "isr-shrink"
            case IsrChanged():
                self._members = len(event.isr)

    def transacted(self) -> None:
        """The coordinator has answered a transaction, and nobody has looked at the answer."""
        changing, self._changing = self._changing, ""
        if changing:
            self.at(changing)

    def sent_answers(self) -> None:
        """Answers have left."""
        answered, self._answered = self._answered, False
        if answered:
            self.at("answered")


class TrappedDisk(RealDisk):
    """The real disk, with traps at what is done to files."""

    def __init__(self, trap: Trap) -> None:
        super().__init__()
        self._trap = trap
        self._cut_steps: int | None = None

    def read(self, path: str) -> bytes | None:
        """See `RealDisk.read`. Whoever reads the intent of a cut is about to carry it out."""
        data = super().read(path)
        if data is not None and path.endswith(f"/{TRUNCATION_FILE}") and self._cut_steps is None:
            self._cut_steps = 0
        return data

    def create(self, path: str, size: int, *, grows: bool = False) -> RealFile:
        """See `RealDisk.create`."""
        self._step()
        return super().create(path, size, grows=grows)

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> RealFile:
        """See `RealDisk.open`."""
        file = super().open(path, read_only=read_only, grows=grows)
        self._watch(file)
        return file

    async def create_in_background(self, path: str, size: int) -> RealFile | None:
        """See `RealDisk.create_in_background`."""
        file = await super().create_in_background(path, size)
        if "/commitlog/" in path:
            self._trap.at("file-roll")
        return file

    async def sync(self, file: DiskFile) -> None:
        """See `RealDisk.sync`."""
        if file.path.endswith("/checkpoint"):
            self._trap.at("checkpoint")
        await super().sync(file)

    def replace(self, path: str, data: bytes) -> None:
        """See `RealDisk.replace`."""
        self._step()
        if path.endswith("/epochFileCheckpoint"):
            self._trap.at("epoch-file")
        if path.endswith("/epochFileCheckpoint.bak"):
            self._trap.at("epoch-file-copy")
        super().replace(path, data)

    def remove(self, path: str) -> None:
        """See `RealDisk.remove`."""
        self._step()
        super().remove(path)
        if path.endswith(f"/{TRUNCATION_FILE}"):
            self._cut_steps = None

    def _watch(self, file: RealFile) -> None:
        sync = file.sync

        def trapped() -> None:
            self._step()
            sync()

        # RealFile has no slots: an attribute of the object comes before the method of its class.
        vars(file)["sync"] = trapped

    def _step(self) -> None:
        if self._cut_steps is not None:
            self._cut_steps += 1
            self._trap.at(f"cut-{self._cut_steps}")


def wrap(
    owner: type, name: str, before: Callable[[], object], after: Callable[[object], object]
) -> None:
    """Have a method call `before` first, and `after` with its object at its end."""
    method = getattr(owner, name)

    def wrapped(self: object, *arguments: object, **named: object) -> object:
        before()
        result = method(self, *arguments, **named)
        after(self)
        return result

    setattr(owner, name, wrapped)


def set_traps(trap: Trap) -> None:
    """Wrap what no seam reaches."""

    def nothing(*_: object) -> None:
        """Nothing to do at this end of a method."""

    def acked(replicas: object) -> None:
        assert isinstance(replicas, InSyncReplicas)
        # Somebody is beyond what all have.
        if any(replica.written > replicas.confirm for replica in replicas.replicas.values()):
            trap.at("one-of-two-acks")

    wrap(
        MessagePuts,
        "put_message",
        lambda: trap.at("before-append"),
        lambda _: trap.at("after-append"),
    )
    wrap(ReplicaServer, "_take", lambda: trap.at("sent-unacked"), nothing)
    wrap(InSyncReplicas, "replica_acked", nothing, acked)
    for kind, name in ((ConsumeQueue, "dispatch_many"), (ConsumeQueueDispatcher, "dispatch")):
        wrap(kind, name, nothing, lambda _: trap.at("mid-dispatch"))
    wrap(Outbox, "flush", nothing, lambda _: trap.sent_answers())
    transact = EtcdClient.transact

    async def trapped_transact(
        client: EtcdClient, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        result = await transact(client, compares, operations)
        trap.transacted()
        return result

    setattr(EtcdClient, "transact", trapped_transact)  # noqa: B010 - mypy knows the method


def killing_main(arguments: list[str]) -> int:
    """Run the node; `arguments` begin with the point."""
    point, *rest = arguments
    if point not in POINTS:
        raise SystemExit(f"no point is named {point}; there are {', '.join(POINTS)}")
    file = Path(rest[rest.index("--config") + 1])
    config = load_config(file).with_secret().node(rest[rest.index("--name") + 1])
    trap = Trap(point, arm_file(config.directory))
    disk = TrappedDisk(trap)
    set_traps(trap)

    def machine() -> Machine:
        return msgspec.structs.replace(this_machine(), disk=disk, on_event=trap.on_event)

    return main(rest, machine)


if __name__ == "__main__":
    sys.exit(killing_main(sys.argv[1:]))
