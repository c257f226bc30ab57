"""What belongs to a supervisor here, and what does not.

A cluster file says which nodes there are, not who runs them: a node may be started by itself, by
systemd say, or on another machine. So nothing is done to a store, a process or a lease before this
has shown that it is ours:

- a *data directory* is for one supervisor, which holds the lock in it (`supervisor_lock`);
- a *store* is free while no process holds its lock; the lock says which process does. One whose
  lock this user may not read is another user's, and is left alone as if it were held;
- a *node* can be started here only at an address of this machine;
- a *lease* at the coordinator is that of a process which has ended here if the store of that node
  knows the session that the lease was taken for, and is free. A session is random, is written to
  the store before it registers, and holds the lock from then until it is over. So a reader that
  reads the record first and finds the lock free afterwards has seen the end of that session. A
  copy of a store knows it too, so nobody may serve at the node's address either.
"""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Final

import trio

from tandem.cluster.errors import NotOursError, NotRunningError
from tandem.cluster.spec import ClusterSpec, NodeSpec, node_by_itself
from tandem.data_file import lock_holder
from tandem.wire.group_state import MalformedGroupRecordError, decode_node
from tandem.wire.store_layout import REPLICA_FILE

SESSION_CHARACTERS_MIN: Final = 16
"""A shorter one could be in the file by chance."""

ENDING_SECONDS_MAX: Final = 3.0
"""How long nodes whose supervisor was killed may take to end; they do so by themselves."""

SERVED_SECONDS_MAX: Final = 0.2
"""How long an address may take to refuse a connection; one of this machine does so at once."""

_POLL_SECONDS: Final = 0.05


def holders(nodes: Sequence[NodeSpec]) -> dict[str, int]:
    """Return the nodes whose store a process has open, with its id; 0 if it cannot be named."""
    found = {
        node.name: lock_holder(node.directory / "lock")
        for node in nodes
        if not _is_closed(node.directory / "lock")
    }
    return {name: pid for name, pid in found.items() if pid is not None}


def of_other_users(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Return the nodes whose store this user may not look into: whether it is held is not known."""
    return [node for node in nodes if _is_closed(node.directory / "lock")]


def of_other_machines(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Return the nodes whose address no interface of this machine has."""
    return [node for node in nodes if not _is_local(node.address)]


def check_addresses(spec: ClusterSpec) -> None:
    """Refuse a cluster whose nodes belong to several machines.

    Raises:
        NotOursError: With how such a node is started.
    """
    if away := of_other_machines(spec.nodes):
        raise NotOursError([node.name for node in away], _of_others(spec, away))


async def check_free(spec: ClusterSpec, nodes: Sequence[NodeSpec]) -> None:
    """Wait a moment for what is ending, and refuse nodes whose store a process has open.

    So is a store of another user, of which that is not known.

    Raises:
        NotOursError: With the processes, and what to do.
    """
    if closed := of_other_users(nodes):
        names = [node.name for node in closed]
        raise NotOursError(
            names,
            f"another user has the stores of {', '.join(names)}: nothing was touched. Give this"
            f" command as that user, or look at the nodes: {_ask(spec)}",
        )
    with trio.move_on_after(ENDING_SECONDS_MAX):
        while holders(nodes):  # noqa: ASYNC110 - of other processes there are no events
            await trio.sleep(_POLL_SECONDS)
    if held := holders(nodes):
        raise NotOursError(
            list(held),
            f"{_processes(held)}, not started by this supervisor: nothing was touched."
            f" {_ask(spec)}; if this command is to run the nodes, first stop each where it was"
            " started",
        )


def has_ended_here(record: bytes, node: NodeSpec) -> bool:
    """Say whether a `node/<name>` record, read before, is that of a process that ended here."""
    try:
        session = decode_node(record).session
        text = (node.directory / REPLICA_FILE).read_bytes()
    except (MalformedGroupRecordError, OSError):
        return False
    is_known = len(session) >= SESSION_CHARACTERS_MIN and session.encode() in text
    return is_known and not holders([node]) and not _is_served(node)


def not_up(spec: ClusterSpec) -> NotRunningError:
    """Return the error of an order to a supervisor that does not run, with what to do instead."""
    if closed := of_other_users(spec.nodes):
        return NotRunningError(
            spec.file,
            f"no supervisor is there to ask, and another user has the stores of"
            f" {', '.join(node.name for node in closed)}. {_ask(spec)}; give orders as that user",
        )
    if held := holders(spec.nodes):
        return NotRunningError(
            spec.file,
            f"no supervisor is there to ask: {_processes(held)}. {_ask(spec)}; stop or restart each"
            " where it was started",
        )
    if away := of_other_machines(spec.nodes):
        return NotRunningError(spec.file, _of_others(spec, away))
    return NotRunningError(spec.file)


def _of_others(spec: ClusterSpec, away: Sequence[NodeSpec]) -> str:
    places = ", ".join(f"{node.name} ({node.address})" for node in away)
    command = node_by_itself(spec.file, "NODE")
    return (
        f"no supervisor is for nodes of other machines than this one: {places}."
        f" Start each on its own machine with `{command}`; {_ask(spec)}"
    )


def _ask(spec: ClusterSpec) -> str:
    return f"`tandem ha status --config {quote(str(spec.file))}` shows them all"


def _processes(held: dict[str, int]) -> str:
    named = [f"{name} (process {pid})" if pid else name for name, pid in held.items()]
    return f"{', '.join(named)} {'runs' if len(named) == 1 else 'run'} by {_self(len(named))}"


def _self(count: int) -> str:
    return "itself" if count == 1 else "themselves"


def _is_closed(lock: Path) -> bool:
    """Whether this user may not read a lock, so that nobody can say whether it is held."""
    try:
        lock.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    # Not by opening it: the lock of this process, if it is one, would go with the descriptor.
    return not os.access(lock, os.R_OK)


def _is_served(node: NodeSpec) -> bool:
    """Whether a process listens for the node, a frozen one too."""
    family = socket.AF_INET6 if ":" in node.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(SERVED_SECONDS_MAX)
        return probe.connect_ex((node.address, node.name_server_port)) != errno.ECONNREFUSED


def _is_local(address: str) -> bool:
    """Whether this machine has the address. The node reports a name that cannot be resolved."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
