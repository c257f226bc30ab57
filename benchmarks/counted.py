"""What `instructions.py` counts: run in the directory of a tree, by the Python of that tree.

    python -P counted.py inside DIRECTORY
    python -P counted.py group KIND NODES DIRECTORY COMMAND...

`inside` takes its steps in this process. `group` has nodes up, each started behind COMMAND, until
its standard input ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import trio

sys.path.insert(0, str(Path.cwd()))

from benchmarks import append, recovery
from store import PutBatch, PutMessage
from tandem.cluster import LocalCluster
from tandem.cluster.node_process import open_process
from tandem.testing import write_cluster_file
from tandem.wire import native
from tandem.wire.message import Message, encode_batch_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tandem.cluster.node_process import NodeProcess

PUTS = 1_000
BATCHES = 100
WARM_PUTS = 200
LOG_BYTES = 16 << 20
READY_SECONDS_MAX = 900.0
SETTINGS: dict[str, dict[str, Any]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 128 << 20,
        "mapped_file_size_consume_queue_bytes": 6_000_000,
        "max_hash_slot_num": 50_000,
        "max_index_num": 400_000,
        "max_message_size_bytes": 4 << 20,
    },
    "broker": {"register_broker_interval_ms": 10_000, "slave_synchronize_interval_ms": 10_000},
    # A node that is counted is slow, and nobody is to take it for dead.
    "coordinator": {"lease_ttl_ms": 600_000},
}


def step(what: str, units: int, take: Callable[[], object]) -> None:
    """Take a step that is counted; others are asked when it begins and when it has ended."""
    print(json.dumps([what, units]), flush=True)
    sys.stdin.readline()
    take()
    print(flush=True)
    sys.stdin.readline()


def inside(directory: Path) -> None:
    """Append to a store and recover one, in this process; the first step is not for counting."""
    append.FILE_BYTES = 64 << 20
    store = append.open_store(directory)
    # Before the store had a part for puts, it took them itself.
    puts = getattr(store, "puts", store)
    message = PutMessage("Bench", 0, append.BODY, append.PROPERTIES, 1, append.BORN_HOST)
    messages = [Message("Bench", append.BODY, keys=f"key-{i}", tags="TagA") for i in range(64)]
    batch = PutBatch("Bench", 1, encode_batch_body(messages), b"", 1, append.BORN_HOST)
    steps = (
        ("append, single", append.round_of(store, puts.put_message, message), 1, PUTS),
        ("append, batches of 64", append.round_of(store, puts.put_batch, batch), 64, BATCHES),
    )
    step("", 1, lambda: [repeat(one, WARM_PUTS) for _, one, *_ in steps])
    for what, one, many, count in steps:
        step(what, count * many, lambda: repeat(one, count))  # noqa: B023
    store.close()
    recovered = directory / "recovered"
    records = recovery.fill(recovered, LOG_BYTES, 1024)
    recovery.open_store(recovered).close()
    step("recovery, clean stop", records, lambda: recovery.open_store(recovered).close())
    recovery.stop_hard(recovered, queues=True)
    step("recovery, crash", records, lambda: recovery.open_store(recovered).close())
    recovery.stop_hard(recovered, queues=False)
    step("recovery, queues lost", records, lambda: recovery.open_store(recovered).close())
    print(flush=True)


def repeat(one: Callable[[], object], count: int) -> None:
    """Do it that often."""
    for _ in range(count):
        one()


async def group(kind: str, nodes_count: int, directory: Path, behind: list[str]) -> None:
    """Have the nodes of a group up."""
    is_fenced = kind == "fenced"
    role = {"min_isr": nodes_count} if is_fenced else {"broker_role": kind}
    own_kind: Literal["fenced", "classic"] = "fenced" if is_fenced else "classic"
    groups = {"broker-a": {"kind": own_kind, **role}}
    file = write_cluster_file(
        directory,
        nodes_count - 1,
        SETTINGS | {"groups": groups},
        kind=own_kind,
    )

    async def open_node(
        command: Sequence[str], log: IO[bytes], environment: dict[str, str]
    ) -> NodeProcess:
        return await open_process([*behind, *command], log, environment)

    async with LocalCluster(file, open_node=open_node) as cluster:
        await cluster.start(ready_seconds_max=READY_SECONDS_MAX)
        nodes = [(node.name, node.pid, node.address) for node in cluster.status()]
        print(json.dumps(nodes), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        for name, *_ in nodes:
            await cluster.kill(name)


def main() -> None:
    """Be what the first argument says."""
    if native.loops is None:
        sys.exit(f"{Path.cwd()} has no loops in C: run its scripts/setup first")
    role, *arguments = sys.argv[1:]
    if role == "inside":
        inside(Path(arguments[0]))
    else:
        kind, count, directory, *behind = arguments
        trio.run(group, kind, int(count), Path(directory), behind)


if __name__ == "__main__":
    main()
