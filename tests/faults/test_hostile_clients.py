"""What one client does to a real node must not keep others waiting, nor cost a master its place."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeAlias

import pytest

from tandem.testing import RunningCluster
from tandem.testing.plugin import MakeTandemCluster
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import Ext, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    ConsumerData,
    HeartbeatData,
    PullMessageRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
)
from tandem.wire.route import encode_json_body
from tests.support.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]

CANARY_SECONDS_MAX: Final = 2.0
"""A send waits for two nodes and their disks, which the attack keeps busy as well. What a node does
in one step is counted elsewhere, in pieces: in the tests of what it does."""

SILENCE_SECONDS_MAX: Final = 0.5
USUAL_TIMES_MAX: Final = 20
QUIET_SENDS: Final = 20
ATTEMPTS: Final = 3
LARGE_BODY: Final = bytes(60_000)


class Client:
    """A blocking connection to a node."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        self._frames = FrameBuffer()

    def write(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def answer(self) -> RemotingCommand:
        """The next answer; what the node pushes is passed over."""
        while True:
            while (command := self._frames.next_command()) is not None:
                if command.is_response:
                    return command
            data = self._socket.recv(1 << 18)
            assert data, "the node closed the connection"
            self._frames.receive_data(data)

    def call(self, frame: bytes) -> RemotingCommand:
        self.write(frame)
        return self.answer()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


def frame(code: int, ext: Ext = None, body: bytes = b"") -> bytes:
    return encode_frame(RemotingCommand(code, 1, ext=ext, body=body))


def send(topic: str, body: bytes = b"x") -> bytes:
    header = SendMessageRequestHeaderV2("PG", topic, "TBW102", 4, 0, 0, 1, 0, "WAIT\x01false\x02")
    return frame(RequestCode.SEND_MESSAGE_V2, header, body)


def pull(topic: str, offset: int, *, suspend_ms: int = 0) -> bytes:
    flags = PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if suspend_ms else 0)
    header = PullMessageRequestHeader("g", topic, 0, offset, 32, flags, 0, suspend_ms, 0, "*")
    return frame(RequestCode.PULL_MESSAGE, header)


class Canary:
    """An ordinary client that sends one message after the other, and how long each took."""

    excused_seconds = CANARY_SECONDS_MAX
    pause_seconds = 0.01

    def __init__(self, address: str) -> None:
        self.seconds: list[float] = []
        self._client = Client(address)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sing)
        self._refused: AssertionError | OSError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait_for(QUIET_SENDS)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait_for(len(self.seconds) + 5)
        finally:
            self._stop.set()
            self._thread.join()
            self._client.close()

    def _wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.seconds) >= count or self._refused is not None)
        if self._refused is not None:
            raise self._refused

    def _sing(self) -> None:
        while not self._stop.wait(self.pause_seconds):
            begun = time.monotonic()
            try:
                assert self._client.call(self._song()).code == 0
            except (AssertionError, OSError) as error:
                self._refused = error
                return
            self.seconds.append(time.monotonic() - begun)

    def _song(self) -> bytes:
        return send("Canary")

    @property
    def seconds_max(self) -> float:
        """How long a request may take, by what this machine does when nobody is in the way.

        Half of the quiet requests took no longer than the usual one: a machine that stands still
        once while nothing happens may not hide that a node does so later.
        """
        quiet = sorted(self.seconds[1:QUIET_SENDS])
        return max(self.excused_seconds, USUAL_TIMES_MAX * quiet[len(quiet) // 2])

    @property
    def was_kept_waiting(self) -> bool:
        """Whether any request took longer."""
        return max(self.seconds[QUIET_SENDS:]) > self.seconds_max


class Watcher(Canary):
    """A client that asks for what a node has in memory: nothing but the node's work delays it."""

    excused_seconds = SILENCE_SECONDS_MAX
    pause_seconds = 0.005

    def _song(self) -> bytes:
        return frame(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("Canary", 0))


Attempt: TypeAlias = "Callable[[RunningCluster, list[Client]], None]"


def assert_once(make: MakeTandemCluster, attempt: Attempt) -> None:
    """Try on a new group. A node that loses its place because of clients does so each time.

    One whose machine does nothing for longer than a lease loses it, too, but not each time.
    """
    for left in reversed(range(ATTEMPTS)):
        crowd: list[Client] = []
        try:
            attempt(make(fenced=True), crowd)
            break
        except (AssertionError, OSError):
            if not left:
                raise
        finally:
            for client in crowd:
                client.close()


def heartbeat_with_many_groups(address: str, crowd: list[Client]) -> None:
    """Each new group was a copy of the table and two files replaced."""
    groups = [ConsumerData(f"group-{number}") for number in range(1000)]
    body = encode_json_body(HeartbeatData("client", consumer_data_set=groups))
    crowd.append(Client(address))
    assert crowd[-1].call(frame(RequestCode.HEART_BEAT, body=body)).code == 0


def pulls_of_clients_that_never_read(address: str, crowd: list[Client]) -> None:
    """Every answer was kept; and a connection that ended was served to the last request."""
    filler = Client(address)
    crowd.append(filler)
    for _ in range(8):
        assert filler.call(send("Large", LARGE_BODY)).code == 0
    wait_until(lambda: filler.call(pull("Large", 4)).code == 0)
    for _ in range(60):
        crowd.append(Client(address))
        crowd[-1].write(pull("Large", 0) * 200)
    for client in crowd[-30:]:
        client.reset()


def pulls_that_wait_by_the_thousand(address: str, crowd: list[Client]) -> None:
    """One message made all of them ready, and all were run in one step."""
    waker = Client(address)
    crowd.append(waker)
    assert waker.call(send("Parked")).code == 0
    wait_until(lambda: waker.call(pull("Parked", 0)).code == 0)
    parking = [Client(address) for _ in range(20)]
    crowd += parking
    for client in parking:
        client.write(pull("Parked", 1, suspend_ms=30_000) * 1000)
    assert waker.call(send("Parked")).code == 0


def assert_keeps_nobody_waiting(
    kind: type[Canary], address: str, attack: Callable[[], None]
) -> None:
    """A node that stands still because of ``attack`` does so each time; a busy machine does not."""
    waits: list[tuple[float, list[float]]] = []
    for _ in range(ATTEMPTS):
        with kind(address) as canary:
            attack()
        if not canary.was_kept_waiting:
            return
        waits.append((canary.seconds_max, sorted(canary.seconds)[-5:]))
    pytest.fail(f"others were kept waiting by {attack} each time (allowed, longest): {waits}")


@pytest.mark.parametrize("kind", [Canary, Watcher])
def test_a_node_that_stands_still_is_noticed(
    make_tandem_cluster: MakeTandemCluster, kind: type[Canary]
) -> None:
    """What the tests below look for is planted: the master does nothing for a moment."""
    # A master that stands still for most of its lease may lose it on a busy machine.
    assert_once(make_tandem_cluster, partial(stand_still_and_be_noticed, kind))


def stand_still_and_be_noticed(
    kind: type[Canary], cluster: RunningCluster, _crowd: list[Client]
) -> None:
    master = cluster.wait_for_master()
    address = cluster.spec.node(master).client_address
    with kind(address) as canary:
        seconds_max = canary.seconds_max

    def stand_still() -> None:
        cluster.freeze(master)
        time.sleep(1.2 * seconds_max)
        cluster.thaw(master)

    with pytest.raises(pytest.fail.Exception):
        assert_keeps_nobody_waiting(kind, address, stand_still)


def test_no_client_keeps_others_waiting_or_costs_the_master_its_place(
    make_tandem_cluster: MakeTandemCluster,
) -> None:
    assert_once(make_tandem_cluster, hurt_in_all_ways)


def hurt_in_all_ways(cluster: RunningCluster, crowd: list[Client]) -> None:
    master = cluster.wait_for_master()
    address = cluster.spec.node(master).client_address
    epochs = epoch_lines(cluster)
    for attack in (
        heartbeat_with_many_groups,
        pulls_of_clients_that_never_read,
        pulls_that_wait_by_the_thousand,
    ):
        assert_keeps_nobody_waiting(Canary, address, partial(attack, address, crowd))
    assert (cluster.master(), epoch_lines(cluster)) == (master, epochs)


def test_large_tables_are_no_reason_to_be_silent(make_tandem_cluster: MakeTandemCluster) -> None:
    """10,000 groups and their topics: writing them down held up each node for a second."""
    assert_once(make_tandem_cluster, fill_the_tables)


def fill_the_tables(cluster: RunningCluster, crowd: list[Client]) -> None:
    master = cluster.wait_for_master()
    address = cluster.spec.node(master).client_address
    client = Client(address)
    crowd.append(client)
    assert client.call(send("Canary")).code == 0
    epochs = epoch_lines(cluster)
    for number in range(10):
        groups = [ConsumerData(f"group-{number}-{each}") for each in range(1000)]
        body = encode_json_body(HeartbeatData(f"client-{number}", consumer_data_set=groups))
        crowd.append(Client(address))
        assert crowd[-1].call(frame(RequestCode.HEART_BEAT, body=body)).code == 0
    config = cluster.store_directory(master) / "config"
    topics = iter(["OneMore", "TwoMore", "ThreeMore"])

    def one_more() -> None:
        topic = next(topics)
        assert client.call(send(topic)).code == 0
        wait_until(lambda: says(config / "topics.json", topic))
        wait_until(lambda: says(config / "subscriptionGroup.json", "group-9-999"))

    assert_keeps_nobody_waiting(Watcher, address, one_more)
    assert (cluster.master(), epoch_lines(cluster)) == (master, epochs)


def says(file: Path, name: str) -> bool:
    return file.exists() and f'"{name}"' in file.read_text()


def epoch_lines(cluster: RunningCluster) -> list[str]:
    """What the nodes say of becoming master."""
    logs = [cluster.log_text(node.name) for node in cluster.status()]
    return [line for log in logs for line in log.splitlines() if "master of epoch" in line.lower()]


def test_a_queue_with_one_message_takes_a_page_of_the_disk(tandem_cluster: RunningCluster) -> None:
    """It used to take its whole file, of 6 MB ordinarily, on every node."""
    client = Client(tandem_cluster.name_servers[0].replace(":9876", ":10911"))
    assert client.call(send("Small")).code == 0
    client.close()
    for node in ("broker-a-0", "broker-a-1"):
        file = tandem_cluster.store_directory(node) / "consumequeue/Small/0" / f"{0:020d}"
        wait_until(file.exists)
        assert blocks_and_size(file) == (4096, 20_000)


def blocks_and_size(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_blocks * 512, status.st_size
