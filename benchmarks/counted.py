"""What `instructions.py` counts: run in the directory of a tree, by the Python of that tree.

    python -P counted.py inside DIRECTORY
    python -P counted.py group KIND NODES DIRECTORY COMMAND...

`inside` takes its steps in this process. `group` has nodes up, each started behind COMMAND, until
its standard input ends.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import trio

sys.path.insert(0, str(Path.cwd()))

from benchmarks.append import BODY, BORN_HOST, PROPERTIES
from benchmarks.recovery import stop_hard
from store import MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.real_disk import RealDisk
from tandem.cluster import LocalCluster
from tandem.cluster.node_process import open_process
from tandem.testing import write_cluster_file
from tandem.wire import native
from tandem.wire.message import Host, Message, encode_batch_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tandem.cluster.node_process import NodeProcess

WARMING = 640
SINGLE = 640
BATCHED = 6_400
LOG_BYTES = 16 << 20
READY_SECONDS_MAX = 3_600.0
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


def open_store(directory: Path) -> MessageStore:
    """Open a store that takes no put for a slow one, however slow it is."""
    config = StoreConfig(
        directory=str(directory),
        mapped_file_size_commit_log_bytes=LOG_BYTES,
        message_index_enable=False,
        os_page_cache_busy_timeout_ms=3_600_000,
    )
    return MessageStore.open(
        config,
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=Host("127.0.0.1", 10_911),
        is_slave=False,
    )


def put_rounds(
    store: MessageStore, put: Callable[[Any], Any], what: object, many: int, count: int
) -> None:
    """Put as often as that is `count` messages; every 64 puts are a round."""
    for number in range(count // many):
        if put(what).status.name != "PUT_OK":
            sys.exit("a message was not stored")
        if not number % 64:
            store.announce()
    store.announce()


def inside(directory: Path) -> None:
    """Append to a store and recover it, in this process; the first step is not for counting."""
    messages = [Message("Bench", BODY, keys=f"key-{i}", tags="TagA") for i in range(64)]
    single = PutMessage("Bench", 0, BODY, PROPERTIES, 1, BORN_HOST)
    batch = PutBatch("Bench", 1, encode_batch_body(messages), b"", 1, BORN_HOST)
    with open_store(directory) as store:
        # Before the store had a part for puts, it took them itself.
        puts: Any = getattr(store, "puts", store)
        steps = (
            ("append, single", puts.put_message, single, 1, SINGLE),
            ("append, batches of 64", puts.put_batch, batch, 64, BATCHED),
        )

        def warm() -> None:
            for _, put, each, many, _ in steps:
                put_rounds(store, put, each, many, WARMING)

        step("", 1, warm)
        for what, put, each, many, count in steps:
            step(what, count, partial(put_rounds, store, put, each, many, count))
    records = 2 * WARMING + SINGLE + BATCHED
    step("recovery, clean stop", records, lambda: open_store(directory).close())
    stop_hard(directory, queues=True)
    step("recovery, crash", records, lambda: open_store(directory).close())
    stop_hard(directory, queues=False)
    step("recovery, queues lost", records, lambda: open_store(directory).close())
    print(flush=True)


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
