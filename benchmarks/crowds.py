"""What does a node pay for what is only there: connections, groups, waiting pulls, timers?

    python benchmarks/crowds.py [--shapes connections groups pulls timers delayed]
                                [--kinds async fenced] [--sizes 1000 10000] [--seconds 5]
                                [--idle 20] [--directory DIR] [--markdown]

Each shape has a fresh group, async (one node) or fenced (three), in which a crowd grows from one
size to the next:

    connections     idle ones; a tenth of them has a put in flight while puts are measured
    groups          of consumers, two members each, that send heartbeats
    pulls           that wait, a hundred groups for each queue
    timers          messages with a time of their own, an hour to three days ahead
    delayed         messages of the highest delay level

and at each size, of the master:

    added           CPU for each one more; memory of each that is no file's (RssAnon)
    idle            CPU in percent of a core while nobody sends; of groups, with the heartbeats that
                    this many members send, one each 30 s
    puts            CPU for each, beside the crowd, and how long they took, at the 99th percentile
    follower        of a fenced group: the CPU that one follower took, the mean of both, for each
                    one more, while nobody sends, and for each put

CPU seconds are alike on a busy machine and on a quiet one, almost; times are not. That a crowd
costs nothing each time something happens is counted, not timed, in
tests/node/test_crowds.py.
"""

from __future__ import annotations

import argparse
import random
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.open_loop import Histogram
from benchmarks.pipelined import LoadError, ask, check_answer, cpu_seconds, send_all, send_frame
from benchmarks.rivals import our_fenced_group, our_group, pause
from benchmarks.scale_nodes import memory_kib
from benchmarks.side_by_side import print_table, say
from tandem.wire.message_properties import encode_properties
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SubscriptionData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.rivals import Server

TOPIC: Final = "Bench"
SIZES: Final = {
    "connections": (1_000, 10_000),
    "groups": (200, 2_000),
    "pulls": (10_000, 100_000),
    "timers": (100_000, 1_000_000),
    "delayed": (100_000, 1_000_000),
}
CONNECTIONS_MAX: Final = 12_000
FROM_AN_ADDRESS: Final = 2_000
GROUPS_A_QUEUE: Final = 100
QUEUES_A_TOPIC: Final = 8
PULLS_A_CONNECTION: Final = 5_000
GROUPS_A_CLIENT: Final = 20
MEMBERS: Final = 2
HEARTBEAT_SECONDS: Final = 30.0
WAIT_MS: Final = 60_000
IN_FLIGHT: Final = 256
SETTLED_SECONDS: Final = 0.1
"""CPU of a second in which a node has nothing to do."""

HOUR_MS: Final = 3_600_000
SPREAD_MS: Final = 71 * HOUR_MS
DELAY_LEVEL: Final = "18"
SMALL_BODY: Final = b"x" * 64

_LENGTH: Final = struct.Struct(">I")


class Row(msgspec.Struct, frozen=True):
    """What was measured at one size."""

    what: str
    size: int
    added_us: float
    added_bytes: float
    idle_share: float
    put_us: float
    put_p50_ms: float
    put_p99_ms: float
    follower_added_us: float
    follower_idle_share: float
    follower_put_us: float


class Costs:
    """CPU seconds of a group since the last look: of the master, and of one follower (mean)."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._master = pids["master"]
        self._followers = [pid for name, pid in pids.items() if name != "master"]
        self._before = (0.0, 0.0)
        self.take()

    def take(self) -> tuple[float, float]:
        """Return what was used since the last look."""
        followers = [cpu_seconds(pid) for pid in self._followers]
        now = cpu_seconds(self._master), sum(followers) / max(len(followers), 1)
        before, self._before = self._before, now
        return now[0] - before[0], now[1] - before[1]


class Crowd:
    """A crowd at a group. Each shape says how it grows, and what it does while nobody sends."""

    name = ""
    per_put_connections = 1

    def __init__(self, stack: ExitStack, server: Server) -> None:
        self.stack = stack
        self.server = server
        self.size = 0

    def prepare(self, size_max: int) -> None:
        """Do what is not of the crowd, before memory is looked at."""

    def check(self) -> None:
        """Make sure that the crowd is there.

        Raises:
            LoadError: It is not.
        """

    def _has(self, size: int) -> int:
        before, self.size = self.size, size
        return size - before

    def settle(self) -> None:
        """Wait until the master has put away what came."""
        pid, before = self.server.pids["master"], -1.0
        while True:
            now = cpu_seconds(pid)
            if before >= 0 and now - before < SETTLED_SECONDS:
                return
            before = now
            pause(1.0)

    def grow(self, size: int) -> int:
        """Have `size` of them; return how many were made for that."""
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        """Let time pass."""
        pause(seconds)

    def putters(self) -> list[socket.socket]:
        """Return the connections that have a put in flight each while puts are measured."""
        return [self.connect() for _ in range(8)]

    def connect(self, number: int = 0) -> socket.socket:
        """Return one more connection."""
        source = (f"127.77.{number // FROM_AN_ADDRESS}.1", 0)
        one = socket.create_connection(self.server.address, 30.0, source)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.stack.enter_context(one)


class IdleConnections(Crowd):
    """Connections that have sent one message, and keep still."""

    name = "connections"

    def __init__(self, stack: ExitStack, server: Server) -> None:
        super().__init__(stack, server)
        self._all: list[socket.socket] = []

    def grow(self, size: int) -> int:
        """See `Crowd`."""
        frame = put_frame(0)
        for number in range(self.size, size):
            one = self.connect(number)
            one.sendall(frame)
            _answer(one)
            self._all.append(one)
        return self._has(size)

    def putters(self) -> list[socket.socket]:
        """See `Crowd`: a tenth of them all."""
        return self._all[::10]


class Groups(Crowd):
    """Groups of two members, of clients that are in twenty groups each."""

    name = "groups"

    def __init__(self, stack: ExitStack, server: Server) -> None:
        super().__init__(stack, server)
        self._clients: list[tuple[socket.socket, bytes]] = []

    def grow(self, size: int) -> int:
        """See `Crowd`."""
        for first in range(self.size, size, GROUPS_A_CLIENT):
            groups = [f"group-{number}" for number in range(first, first + GROUPS_A_CLIENT)]
            for member in range(MEMBERS):
                beat = _heartbeat_frame(f"client-{first}-{member}", groups)
                one = self.connect()
                self._beat(one, beat)
                self._clients.append((one, beat))
        return self._has(size)

    def rest(self, seconds: float) -> None:
        """See `Crowd`: each client sends a heartbeat every half a minute."""
        began = time.perf_counter()
        each = HEARTBEAT_SECONDS / len(self._clients)
        count = int(seconds / each)
        for number in range(count):
            one, beat = self._clients[number % len(self._clients)]
            self._beat(one, beat)
            pause(max(0.0, began + (number + 1) * each - time.perf_counter()))

    @staticmethod
    def _beat(one: socket.socket, beat: bytes) -> None:
        one.sendall(beat)
        # Notices of a change of a group come before it.
        while True:
            header = _header(_frame_of(one))
            if not header["flag"] & 1:
                continue
            if header["code"]:
                raise LoadError(f"a heartbeat is answered {header['code']}: {header}")
            return


class WaitingPulls(Crowd):
    """Pulls at the end of queues."""

    name = "pulls"

    def __init__(self, stack: ExitStack, server: Server) -> None:
        super().__init__(stack, server)
        self._all: list[socket.socket] = []

    def prepare(self, size_max: int) -> None:
        """Make the queues, and the groups."""
        queues = -(-size_max // GROUPS_A_QUEUE)
        send_all(
            self.server.address,
            [
                send_frame(*_place(number), wait=False, queue_id=number % QUEUES_A_TOPIC, queues=8)
                for number in range(queues)
            ],
        )
        groups = [f"group-{number}" for number in range(GROUPS_A_QUEUE)]
        one = self.connect()
        Groups._beat(one, _heartbeat_frame("prepares", groups))  # noqa: SLF001

    def grow(self, size: int) -> int:
        """See `Crowd`."""
        for one in self._all:
            one.close()
        self._all = []
        for begin in range(0, size, PULLS_A_CONNECTION):
            one = self.connect(len(self._all) * FROM_AN_ADDRESS)
            self._all.append(one)
            for first in range(begin, min(begin + PULLS_A_CONNECTION, size), 100):
                numbers = range(first, min(first + 100, size))
                one.sendall(b"".join(_pull_frame(number) for number in numbers))
        self._has(size)
        return size

    def check(self) -> None:
        """See `Crowd`: none was answered."""
        answered, _, _ = select.select(self._all, [], [], 0)
        if answered:
            raise LoadError(f"a pull waits no more: {_header(_frame_of(answered[0]))}")


class Timers(Crowd):
    """Messages with a time of their own."""

    name = "timers"

    def grow(self, size: int) -> int:
        """See `Crowd`."""
        chance = random.Random(self.size)
        now_ms = time.time_ns() // 1_000_000
        send_windowed(
            self.connect(),
            (self._frame(number, now_ms, chance) for number in range(self.size, size)),
        )
        return self._has(size)

    def _frame(self, number: int, now_ms: int, chance: random.Random) -> bytes:
        due_ms = now_ms + HOUR_MS + chance.randrange(SPREAD_MS)
        return put_frame(number, SMALL_BODY, {"TIMER_DELIVER_MS": str(due_ms)})


class Delayed(Timers):
    """Messages of the highest delay level, two hours."""

    name = "delayed"

    def _frame(self, number: int, now_ms: int, chance: random.Random) -> bytes:
        return put_frame(number, SMALL_BODY, {"DELAY": DELAY_LEVEL})


CROWDS: Final = {
    each.name: each for each in (IdleConnections, Groups, WaitingPulls, Timers, Delayed)
}


def _place(number: int) -> tuple[str, int]:
    return f"topic-{number // QUEUES_A_TOPIC:06d}", number


def put_frame(
    number: int, body: bytes = b"x" * 1024, properties: dict[str, str] | None = None
) -> bytes:
    """Return the frame of one message of a crowd."""
    text = encode_properties(
        {"UNIQ_KEY": f"7F0000010000{number:020X}", "WAIT": "true", **(properties or {})}
    )
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % 4,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=text.decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return _encoded(RequestCode.SEND_MESSAGE_V2, number, header, body)


def _pull_frame(number: int) -> bytes:
    queue, group = divmod(number, GROUPS_A_QUEUE)
    header = PullMessageRequestHeader(
        consumer_group=f"group-{group}",
        topic=_place(queue)[0],
        queue_id=queue % QUEUES_A_TOPIC,
        queue_offset=1,
        max_msg_nums=32,
        sys_flag=6,  # it waits, and has its subscription with it
        commit_offset=0,
        suspend_timeout_millis=WAIT_MS,
        sub_version=0,
        subscription="*",
    )
    return _encoded(RequestCode.PULL_MESSAGE, number, header, b"")


def _heartbeat_frame(client_id: str, groups: Iterable[str]) -> bytes:
    data = [
        ConsumerData(
            group_name=group,
            subscription_data_set=[
                SubscriptionData(TOPIC, "*", 1),
                SubscriptionData("Other", "a || b", 1),
            ],
        )
        for group in groups
    ]
    body = msgspec.json.encode(HeartbeatData(client_id, [], data))
    return _encoded(RequestCode.HEART_BEAT, 0, None, body)


def _encoded(code: RequestCode, number: int, header: Any, body: bytes) -> bytes:  # noqa: ANN401
    return encode_frame(
        RemotingCommand(code, number, ext=header, body=body, serialize_type=SerializeType.JSON)
    )


def _frame_of(one: socket.socket) -> bytes:
    """Return the next whole frame."""
    head = _exactly(one, 4)
    return head + _exactly(one, _LENGTH.unpack(head)[0])


def _exactly(one: socket.socket, count: int) -> bytes:
    data = one.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise LoadError("the node has closed a connection")
    return data


def _header(frame: bytes) -> dict[str, Any]:
    header_bytes = _LENGTH.unpack_from(frame, 4)[0] & 0xFFFFFF
    header: dict[str, Any] = msgspec.json.decode(frame[8 : 8 + header_bytes])
    return header


def _answer(one: socket.socket) -> None:
    check_answer(_frame_of(one))


def send_windowed(one: socket.socket, frames: Iterable[bytes]) -> None:
    """Send frames, some in flight, and look at each answer."""
    flying = 0
    batch: list[bytes] = []

    def send() -> None:
        nonlocal flying
        one.sendall(b"".join(batch))
        flying += len(batch)
        batch.clear()

    for frame in frames:
        batch.append(frame)
        if len(batch) == IN_FLIGHT:
            while flying > IN_FLIGHT:
                _answer(one)
                flying -= 1
            send()
    send()
    for _ in range(flying):
        _answer(one)


def puts_beside(crowd: Crowd, seconds: float) -> tuple[int, Histogram]:
    """Have a put in flight on each connection of a crowd that has one, for a while."""
    frames = [put_frame(number) for number in range(256)]
    latencies, done = Histogram(), 0
    connections = {one.fileno(): one for one in crowd.putters()}
    with select.epoll() as poll:
        for fd in connections:
            poll.register(fd, select.EPOLLIN)
        end = time.perf_counter() + seconds
        sent_at: dict[int, float] = {}
        for fd, one in connections.items():
            sent_at[fd] = time.perf_counter()
            one.sendall(frames[done % 256])
        while sent_at:
            for fd, _ in poll.poll(30.0):
                _answer(connections[fd])
                now = time.perf_counter()
                latencies.add(now - sent_at.pop(fd))
                done += 1
                if now < end:
                    sent_at[fd] = now
                    connections[fd].sendall(frames[done % 256])
    return done, latencies


def measure(
    crowd: Crowd, sizes: Iterable[int], seconds: float, idle: float, kind: str
) -> list[Row]:
    """Have a crowd grow, and look at the master at each size."""
    pid = crowd.server.pids["master"]
    rows = []
    while ask(crowd.server.address, put_frame(0)).get("code") != 0:
        pause(0.3)
    crowd.prepare(max(sizes))
    crowd.settle()
    base = memory_kib(pid, "RssAnon")
    costs = Costs(crowd.server.pids)
    for size in sizes:
        costs.take()
        new = crowd.grow(size)
        crowd.settle()
        added = costs.take()
        crowd.check()
        own_kib = memory_kib(pid, "RssAnon") - base
        began = time.perf_counter()
        costs.take()
        crowd.rest(idle)
        seconds_of_rest = time.perf_counter() - began
        rest = costs.take()
        puts, latencies = puts_beside(crowd, seconds)
        put = costs.take()
        crowd.check()
        row = Row(
            f"{crowd.name}, {kind}",
            size,
            added[0] / new * 1e6,
            own_kib * 1024 / size,
            rest[0] / seconds_of_rest,
            put[0] / puts * 1e6,
            latencies.percentile(0.5) * 1e3,
            latencies.percentile(0.99) * 1e3,
            added[1] / new * 1e6,
            rest[1] / seconds_of_rest,
            put[1] / puts * 1e6,
        )
        say(str(row))
        rows.append(row)
    return rows


def _group(stack: ExitStack, directory: Path, kind: str) -> Server:
    store = {"file_reserved_time_hours": 72, "disk_max_used_space_ratio": 95}
    store["timer_wheel_enable"] = True
    broker = {"connections_max": CONNECTIONS_MAX}
    if kind == "fenced":
        return stack.enter_context(our_fenced_group(directory, 3, store=store, broker=broker))
    return stack.enter_context(our_group(directory, 0, store=store, broker=broker))


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=("async", "fenced"), default=["async"])
    parser.add_argument("--sizes", type=int, nargs="+", help="of each crowd, growing")
    parser.add_argument("--seconds", type=float, default=5.0, help="of puts")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without puts")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = []
    for shape in options.shapes:
        for kind in options.kinds:
            with (
                tempfile.TemporaryDirectory(prefix="crowds-", dir=options.directory) as at,
                ExitStack() as stack,
            ):
                server = _group(stack, Path(at) / "group", kind)
                crowd = CROWDS[shape](stack, server)
                sizes = options.sizes or SIZES[shape]
                rows += measure(crowd, sizes, options.seconds, options.idle, kind)
    head = (
        "",
        "how many",
        "one more: CPU us",
        "bytes",
        "idle",
        "a put: CPU us",
        "p50 ms",
        "p99 ms",
        "follower: one more",
        "idle",
        "a put",
    )
    lines = [
        (
            row.what,
            f"{row.size:,}",
            f"{row.added_us:,.0f}",
            f"{row.added_bytes:,.0f}",
            f"{row.idle_share:.1%}",
            f"{row.put_us:,.0f}",
            f"{row.put_p50_ms:.1f}",
            f"{row.put_p99_ms:.1f}",
            f"{row.follower_added_us:,.0f}",
            f"{row.follower_idle_share:.1%}",
            f"{row.follower_put_us:,.0f}",
        )
        for row in rows
    ]
    print_table(head, lines, markdown=options.markdown)


if __name__ == "__main__":
    main()
