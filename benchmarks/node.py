"""What does a node take from one client connection, and what does a slave cost it?

    python benchmarks/node.py [--seconds 3] [--rounds 3] [--only one-node|sync] [--fenced]

Nodes run as processes of their own. Two kinds of load come from this process: a pipelined
generator (ready-made frames, a window of them in flight, no work per answer but splitting) that
shows what the node takes, and the project's own client, a task per message, that shows what a
program gets.

Beside them runs a plain echo: the same bytes over the same kind of socket to a process that answers
every 1 KB frame with an answer of the same size as a node's, and does nothing else. Ratios to it
carry over to other machines; rates do not. Bodies are 1 KB. The log is not synced by the put
(ASYNC_FLUSH) and its file is touched before the load begins, as a running node does with the next
file, so these are bursts: no disk takes these rates for long. Every round gets a fresh cluster.

With `--fenced` only this is measured: a fenced group of three nodes beside a classic one of three
whose master waits for both slaves as well (`in_sync_replicas: 3`), in turns. "CPU" is the time all
three nodes together spend on a message: it hardly depends on who else uses the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from tandem.client import BlockingProducer, BlockingPullConsumer, Producer, SendStatus
from tandem.testing import RunningCluster, running_fenced_cluster
from tandem.testing import running_cluster as running_classic_cluster
from tandem.wire.message import Message, encode_batch_body
from tandem.wire.message_properties import encode_properties
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2

BODY = b"x" * 1024
LENGTH = struct.Struct(">I")
TOPIC = "Bench"
ANSWER_BYTES = 120
ROOT = Path(__file__).resolve().parent.parent

CLUSTER = """
cluster: {{name: Bench, data_directory: data}}
store: {{mapped_file_size_commit_log_bytes: 1073741824}}
groups: {{broker-a: {{broker_role: {role}}}}}
nodes:
{nodes}
"""
NODE = (
    "  - {{name: broker-a-{id}, group: broker-a, broker_id: {id}, address: 127.31.0.{host},"
    " port: 10911, ha_port: 10912, name_server_port: 9876}}\n"
)

ECHO = """
import contextlib, socket, sys
frame_bytes, answer_bytes = int(sys.argv[1]), int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
answer = (answer_bytes - 4).to_bytes(4, "big") + bytes(answer_bytes - 4)
stream, _ = listener.accept()
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
rest = 0
with contextlib.suppress(ConnectionError):
    while data := stream.recv(1 << 18):
        count, rest = divmod(rest + len(data), frame_bytes)
        if count:
            stream.sendall(answer * count)
"""


class Outcome(msgspec.Struct, frozen=True):
    """One run of a load: how many messages a second, and latencies in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float


@contextlib.contextmanager
def running_cluster(slaves: int, role: str) -> Iterator[str]:
    """Run a master and `slaves` slaves; yield the master's address."""
    directory = Path(tempfile.mkdtemp(prefix="tandem-bench-"))
    nodes = "".join(NODE.format(id=i, host=i + 1) for i in range(slaves + 1))
    config = directory / "cluster.yaml"
    config.write_text(CLUSTER.format(role=role, nodes=nodes))
    names = [f"broker-a-{i}" for i in range(slaves + 1)]
    processes = [start_node(config, name) for name in names]
    try:
        # A slave makes its first file when the first message comes.
        wait_for(directory / "data" / names[0] / "commitlog" / f"{0:020d}")
        trio.run(trio.sleep, 1.5 if slaves else 0.1)  # slaves attach within a second
        yield "127.31.0.1"
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(directory)


def wait_for(path: Path) -> None:
    """Wait until the node has its first log file ready and touched."""

    async def poll() -> None:
        with trio.fail_after(60):
            while not await trio.Path(path).exists():  # noqa: ASYNC110 - another process makes it
                await trio.sleep(0.05)

    trio.run(poll)


def start_node(config: Path, name: str) -> subprocess.Popen[bytes]:
    """Start one node and wait until it is ready."""
    command = [sys.executable, "-P", "-m", "node", "--config", str(config), "--name", name]
    log = (config.parent / f"{name}.log").open("wb")
    process = subprocess.Popen(
        [*command, "--supervised"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        cwd=ROOT,
    )
    assert process.stdout is not None
    if not process.stdout.readline().startswith(b"READY"):
        sys.exit((config.parent / f"{name}.log").read_text())
    return process


def send_frame(opaque: int, encoding: SerializeType, *, wait: bool, batch: int) -> bytes:
    """Return a SEND_MESSAGE_V2 frame, or a batch of `batch` messages."""
    opaque += 1 << 20  # the same width for all, so that all frames have one size
    properties = {"UNIQ_KEY": f"{opaque:032X}", "WAIT": "true" if wait else "false"}
    body = BODY
    if batch > 1:
        body = encode_batch_body([Message(TOPIC, BODY)] * batch)
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=opaque % 4,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=encode_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=batch > 1,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch > 1 else RequestCode.SEND_MESSAGE_V2
    return encode_frame(
        RemotingCommand(code, opaque, ext=header, body=body, serialize_type=encoding)
    )


def pipelined(
    address: tuple[str, int], frames: list[bytes], seconds: float, *, messages_per_frame: int = 1
) -> Outcome:
    """Keep `len(frames)` frames in flight on one connection. Answers come in order."""
    with socket.create_connection(address) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting: deque[tuple[float, int]] = deque()
        latencies: list[tuple[float, int]] = []
        start = time.perf_counter()
        warm = start + 0.2 * seconds
        end = warm + seconds
        done = position = 0
        rest = b""
        stream.sendall(b"".join(frames))
        waiting.append((start, len(frames)))
        while (now := time.perf_counter()) < end:
            data = rest + stream.recv(1 << 18)
            count, rest = count_frames(data)
            now = time.perf_counter()
            if now >= warm:
                done += count
            left = count
            while left:
                sent_at, sent = waiting.popleft()
                taken = min(sent, left)
                if now >= warm:
                    latencies.append((now - sent_at, taken))
                if sent > taken:
                    waiting.appendleft((sent_at, sent - taken))
                left -= taken
            if count:
                some = [frames[(position + i) % len(frames)] for i in range(count)]
                position += count
                waiting.append((time.perf_counter(), count))
                stream.sendall(b"".join(some))
        rate = done * messages_per_frame / (time.perf_counter() - warm)
    return Outcome(rate, *percentiles(latencies))


def count_frames(data: bytes) -> tuple[int, bytes]:
    """Return how many whole frames `data` starts with, and what comes after them."""
    count = position = 0
    unpack = LENGTH.unpack_from
    end = len(data)
    while position + 4 <= end:
        following = position + 4 + unpack(data, position)[0]
        if following > end:
            break
        position = following
        count += 1
    return count, data[position:]


def percentiles(latencies: list[tuple[float, int]]) -> tuple[float, float]:
    """Return median and 99th percentile in milliseconds of (seconds, how many) pairs."""
    latencies.sort()
    total = sum(count for _, count in latencies)
    found = []
    for share in (0.5, 0.99):
        seen = 0
        for seconds, count in latencies:
            seen += count
            if seen >= share * total:
                found.append(seconds * 1000)
                break
    return (found[0], found[1]) if len(found) == 2 else (0.0, 0.0)


def echo(frames: list[bytes], seconds: float) -> Outcome:
    """The same load against a process that only answers."""
    command = [sys.executable, "-c", ECHO, str(len(frames[0])), str(ANSWER_BYTES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        return pipelined(("127.0.0.1", int(process.stdout.readline())), frames, seconds)
    finally:
        process.kill()
        process.wait()


async def own_client(host: str, tasks: int, seconds: float, *, wait: bool) -> Outcome:
    """`tasks` tasks that each await their own answer, over one connection."""
    latencies: list[tuple[float, int]] = []
    async with Producer([f"{host}:9876"], group="bench", wait_store_msg_ok=wait) as producer:
        await producer.send(Message(TOPIC, BODY))
        warm = trio.current_time() + 0.2 * seconds
        end = warm + seconds

        async def send_on() -> None:
            message = Message(TOPIC, BODY)
            while (sent_at := trio.current_time()) < end:
                await producer.send(message)
                now = trio.current_time()
                if now >= warm:
                    latencies.append((now - sent_at, 1))

        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(send_on)
        rate = len(latencies) / (trio.current_time() - warm)
    return Outcome(rate, *percentiles(latencies))


class Table:
    """Runs loads `rounds` times, each on a fresh cluster, and prints the median round."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def row(
        self,
        what: str,
        load: Callable[[str], Outcome],
        *,
        slaves: int | None = None,
        base: Outcome | None = None,
    ) -> Outcome:
        """Print one line and return its median outcome. `load` gets the master's address."""
        outcomes = sorted((self._run(load, slaves) for _ in range(self._rounds)), key=_rate)
        median = outcomes[len(outcomes) // 2]
        spread = f"{outcomes[0].rate:,.0f} to {outcomes[-1].rate:,.0f}"
        ratio = f"{median.rate / base.rate:6.2f}" if base else "      "
        print(
            f"{what:<42} {median.rate:>10,.0f}/s {ratio}  p50 {median.p50_ms:7.2f} ms"
            f"  p99 {median.p99_ms:7.2f} ms   ({spread})",
            flush=True,
        )
        return median

    @staticmethod
    def _run(load: Callable[[str], Outcome], slaves: int | None) -> Outcome:
        if slaves is None:
            return load("")
        with running_cluster(slaves, "SYNC_MASTER" if slaves else "ASYNC_MASTER") as host:
            return load(host)


def _rate(outcome: Outcome) -> float:
    return outcome.rate


def frames_of(
    depth: int,
    encoding: SerializeType = SerializeType.MSGPACK,
    *,
    wait: bool = True,
    batch: int = 1,
) -> list[bytes]:
    """Return as many frames as are in flight at a time."""
    return [send_frame(i, encoding, wait=wait, batch=batch) for i in range(depth)]


def one_node(table: Table, seconds: float) -> None:
    """One node, one connection."""
    print("one node, one connection; the ratio is to the echo of the same depth")

    def load(frames: list[bytes], messages_per_frame: int = 1) -> Callable[[str], Outcome]:
        return lambda host: pipelined(
            (host, 10911), frames, seconds, messages_per_frame=messages_per_frame
        )

    for depth in (1, 64, 256):
        frames = frames_of(depth)
        base = table.row(f"echo, {depth} in flight", lambda _: echo(frames, seconds))  # noqa: B023
        for encoding in (SerializeType.MSGPACK, SerializeType.JSON):
            what = f"pipelined, {encoding.name} header, {depth} in flight"
            table.row(what, load(frames_of(depth, encoding)), slaves=0, base=base)
        client = partial(own_client, tasks=depth, seconds=seconds, wait=True)
        table.row(
            f"own client, {depth} tasks",
            lambda host: trio.run(partial(client, host)),  # noqa: B023
            slaves=0,
            base=base,
        )
    what = "pipelined batches of 64, 8 in flight"
    table.row(what, load(frames_of(8, batch=64), messages_per_frame=64), slaves=0)


def sync(table: Table, seconds: float) -> None:
    """A master and a slave: what waiting for the slave costs."""
    print("master and one slave, SYNC_MASTER, one connection; the ratio is sync to async")
    for depth in (1, 64, 256):
        asynchronous, synchronous = frames_of(depth, wait=False), frames_of(depth)
        base = table.row(
            f"async (WAIT=false), {depth} in flight",
            lambda host: pipelined((host, 10911), asynchronous, seconds),  # noqa: B023
            slaves=1,
        )
        table.row(
            f"sync, {depth} in flight",
            lambda host: pipelined((host, 10911), synchronous, seconds),  # noqa: B023
            slaves=1,
            base=base,
        )


# A fenced group beside a classic one

KINDS = ("classic", "fenced")
DEPTHS = (1, 64, 256, 1024)
FENCED_FILE_BYTES = 256 << 20
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Turn(msgspec.Struct, frozen=True):
    """One load on one kind of group."""

    outcome: Outcome
    cpu_us: float
    """Of all nodes, for one message."""


def compare_kinds(seconds: float, rounds: int) -> None:
    """Print what a fenced group takes beside a classic one."""
    print("three nodes, everybody has to have a message; the ratios are fenced to classic")
    loads = {f"{name}, {depth:>4} in flight": (depth, name == "sync") for name, depth in _LOADS}
    turns: dict[tuple[str, str], list[Turn]] = {}
    for number in range(rounds):
        for kind in KINDS[:: 1 if number % 2 else -1]:
            with group_of_three(kind) as cluster:
                for what, (depth, wait) in loads.items():
                    turn = loaded(cluster, frames_of(depth, wait=wait), seconds)
                    turns.setdefault((what, kind), []).append(turn)
    for what in loads:
        classic, fenced = (turns[what, kind] for kind in KINDS)
        print_turns(f"{what}, classic", classic)
        print_turns(f"{what}, fenced", fenced, classic)


_LOADS = [("async", 256), *(("sync", depth) for depth in DEPTHS)]


@contextlib.contextmanager
def group_of_three(kind: str) -> Iterator[RunningCluster]:
    """Run three nodes that are in sync."""
    settings = {
        "store": {
            "mapped_file_size_commit_log_bytes": FENCED_FILE_BYTES,
            "mapped_file_size_consume_queue_bytes": 6_000_000,
            "max_message_size_bytes": 4 << 20,
        },
        "broker": {"register_broker_interval_ms": 5_000},
        "replication": {"in_sync_replicas": 3} if kind == "classic" else {},
    }
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name, contextlib.ExitStack() as up:
        directory = Path(name)
        cluster = up.enter_context(
            running_classic_cluster(directory, slaves_count=2, settings=settings)
            if kind == "classic"
            else running_fenced_cluster(directory, nodes_count=3, settings=settings)
        )
        with BlockingProducer(cluster.name_servers, group="bench") as producer:
            result = producer.send(Message(TOPIC, BODY))
        if result.status is not SendStatus.SEND_OK:
            sys.exit(f"the first message was answered {result.status.name}: {result.reason}")
        for node in cluster.spec.nodes:
            wait_for(cluster.store_directory(node.name) / "commitlog" / f"{0:020d}")
        trio.run(until_idle, cluster)
        yield cluster


async def until_idle(cluster: RunningCluster) -> None:
    """Wait until the files that come next have been touched."""
    with trio.move_on_after(20):
        while True:
            before = cpu_seconds(cluster)
            await trio.sleep(0.5)
            if cpu_seconds(cluster) < before + 0.05:
                return


def loaded(cluster: RunningCluster, frames: list[bytes], seconds: float) -> Turn:
    """Put a load on the master; every answer must have been that of a stored message."""
    master = cluster.master() if cluster.is_fenced else cluster.spec.nodes[0].name
    node = cluster.spec.node(master)
    stored, cpu = messages_in(cluster), cpu_seconds(cluster)
    outcome = pipelined((node.address, node.port), frames, seconds)
    cpu = cpu_seconds(cluster) - cpu
    trio.run(trio.sleep, 0.5)
    count = messages_in(cluster) - stored
    if count < outcome.rate * seconds * 0.95:
        sys.exit(f"{count} messages were stored of {outcome.rate * seconds:.0f} that were answered")
    return Turn(outcome, cpu / count * 1e6)


def messages_in(cluster: RunningCluster) -> int:
    """Return how many messages the topic has."""
    with BlockingPullConsumer(cluster.name_servers, group="bench") as consumer:
        return sum(consumer.max_offset(queue) for queue in consumer.fetch_message_queues(TOPIC))


def cpu_seconds(cluster: RunningCluster) -> float:
    """Return what the nodes have used up so far."""
    ticks = 0
    for node in cluster.status():
        fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / CLOCK_TICKS


def print_turns(what: str, turns: list[Turn], base: list[Turn] | None = None) -> None:
    """Print the median turn, and its ratio to the other kind's."""
    turns = sorted(turns, key=lambda turn: turn.outcome.rate)
    median = turns[len(turns) // 2].outcome
    cpu_us = statistics.median(turn.cpu_us for turn in turns)
    ratio = ""
    if base is not None:
        base_rate = statistics.median(turn.outcome.rate for turn in base)
        base_cpu_us = statistics.median(turn.cpu_us for turn in base)
        ratio = f"   rate {median.rate / base_rate:.2f}, CPU {cpu_us / base_cpu_us:.2f}"
    print(
        f"{what:<34} {median.rate:>9,.0f}/s   p50 {median.p50_ms:7.2f} ms"
        f"  p99 {median.p99_ms:7.2f} ms   CPU {cpu_us:6.1f} us"
        f"   ({turns[0].outcome.rate:,.0f} to {turns[-1].outcome.rate:,.0f}){ratio}",
        flush=True,
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["one-node", "sync"])
    parser.add_argument("--fenced", action="store_true", help="a fenced group beside a classic one")
    options = parser.parse_args()
    if options.fenced:
        compare_kinds(options.seconds, options.rounds)
        return
    table = Table(options.rounds)
    if options.only != "sync":
        one_node(table, options.seconds)
    if options.only != "one-node":
        sync(table, options.seconds)


if __name__ == "__main__":
    main()
