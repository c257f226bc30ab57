"""Watches a group of RocketMQ while it is drilled, in the words that a drill has for ours.

    controller     who is master of which epoch, and the SyncStateSet (request 1006), become the
                   record of the group; that it names a master, the record of a leader
    each broker    what it says of its replication (907) becomes its status, and how far it is

Everything is asked a few times a second, so that is how exact the times are. A broker that does not
answer, being frozen or dead, is known by its silence.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec
import trio

from tandem.client import ClientError
from tandem.cluster.spec import NodeSpec
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.watched_group import MASTER_ROLE, NO_BOUND, WatchedGroup
from tandem.wire.errors import MalformedFrameError
from tandem.wire.group_state import GroupState, LeaderRecord
from tandem.wire.ha_status import FencedStatus
from tandem.wire.remoting_command import FRAME_HEAD, RemotingCommand, decode_frame_parts
from tandem.wire.remoting_command import encode_frame as frame_of
from tandem.wire.request_headers import HARuntimeInfo
from tandem.wire.untrusted import UnreadableError, decode_json

GET_METADATA_INFO: Final = 1005
GET_SYNC_STATE_DATA: Final = 1006
GET_TOPIC_CONFIG: Final = 351
SUCCESS: Final = 0

POLL_SECONDS: Final = 0.1
SILENT_SECONDS: Final = 1.0
"""No answer is waited for longer than this."""

ANSWER_BYTES_MAX: Final = 1 << 20

FOLLOWER_ROLE: Final = "FOLLOWER"


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """A broker as the controller knows it."""

    broker_address: str | None = None
    broker_id: int | None = None
    alive: bool | None = None


class SyncState(msgspec.Struct, frozen=True, rename="camel"):
    """One group as the controller knows it. Without a master its address is empty."""

    master_address: str | None = None
    master_epoch: int | None = None
    in_sync_replicas: list[Replica] | None = None
    not_in_sync_replicas: list[Replica] | None = None


class SyncStates(msgspec.Struct, frozen=True, rename="camel"):
    """Body of the answer to request 1006."""

    replicas_info_table: dict[str, SyncState] = {}


class Clock(Protocol):
    """Seconds since the drill started."""

    def now(self) -> float:
        """Return the time."""
        ...


class AsksBroker(Protocol):
    """What is needed of tandem.Admin."""

    async def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        """Ask a broker for its replication; raises ClientError."""
        ...


class NoAnswerError(Exception):
    """Nobody answered in a way that can be read; the text says what came instead."""


async def ask(
    address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b""
) -> RemotingCommand:
    """Ask one question on a connection of its own.

    Raises:
        NoAnswerError: no answer came within SILENT_SECONDS, or none that can be read.
    """
    host, _, port = address.rpartition(":")
    request = frame_of(RemotingCommand(code, 1, ext=ext, body=body))
    with trio.move_on_after(SILENT_SECONDS):
        try:
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(request)
                total, word = FRAME_HEAD.unpack(await _exactly(stream, FRAME_HEAD.size))
                header_bytes = word & 0xFFFFFF
                rest = await _exactly(stream, total - 4)
                return decode_frame_parts(word >> 24, rest[:header_bytes], rest[header_bytes:])
        except (OSError, trio.BrokenResourceError, MalformedFrameError) as error:
            raise NoAnswerError(f"{address}: {error}") from error
    raise NoAnswerError(f"{address}: no answer in {SILENT_SECONDS:g} s")


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    if not 0 <= size <= ANSWER_BYTES_MAX:
        raise NoAnswerError(f"an answer of {size} bytes")
    found = bytearray()
    while len(found) < size:
        part = await stream.receive_some(size - len(found))
        if not part:
            raise NoAnswerError("the connection ended within an answer")
        found += part
    return bytes(found)


async def knows_topic(address: str, topic: str) -> bool:
    """Whether the broker at `address` has a topic."""
    try:
        return (await ask(address, GET_TOPIC_CONFIG, {"topic": topic})).code == SUCCESS
    except NoAnswerError:
        return False


async def wait_for_topic(address: str, topic: str) -> None:
    """Return when the broker at `address` has a topic."""
    while not await knows_topic(address, topic):  # noqa: ASYNC110 - another process
        await trio.sleep(POLL_SECONDS)


async def sync_state(controller: str, group: str) -> SyncState | None:
    """Return what the controller knows of a group; None while it has no answer."""
    try:
        answer = await ask(controller, GET_SYNC_STATE_DATA, body=msgspec.json.encode([group]))
        if answer.code != SUCCESS:
            return None
        return decode_json(answer.body, SyncStates).replicas_info_table.get(group)
    except (NoAnswerError, UnreadableError):
        return None


class WatchedBrokers:
    """What the brokers of a group and its controller said last, passed on as it comes.

    Pure but for the calls of `Replication` and `WatchedGroup`, which remember.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        replication: Replication,
        watched: WatchedGroup | None,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._by_address = {node.client_address: node.name for node in nodes}
        self._replication = replication
        self._watched = watched
        self._said: dict[str, HARuntimeInfo | None] = dict.fromkeys(self._nodes)
        self._first_master = nodes[0].name
        self._epochs: dict[str, int] = {}

    def controller_said(self, asked_at: float, now: float, state: SyncState | None) -> None:
        """Take the controller's view of the group."""
        watched = self._watched
        if watched is None or state is None or state.master_epoch is None:
            return
        master = self._by_address.get(state.master_address or "", "")
        names = [
            name
            for replica in state.in_sync_replicas or []
            if (name := self._by_address.get(replica.broker_address or ""))
        ]
        record = GroupState(
            epoch=state.master_epoch,
            master=master,
            isr=dict.fromkeys(names, ""),
            min_isr=1,
            reason="elected by the controller" if master else "",
        )
        leader = LeaderRecord(node=master, session="", epoch=record.epoch) if master else None
        watched.coordinator_said(asked_at, now, record, leader)

    def broker_said(
        self, asked_at: float, now: float, node: str, info: HARuntimeInfo | None
    ) -> None:
        """Take a broker's word of its replication; None if it did not answer."""
        self._said[node] = info
        watched = self._watched
        if watched is not None:
            if info is None:
                watched.node_silent(asked_at, node)
            else:
                watched.node_said(asked_at, now, node, self._status(node, info, watched))
        master = watched.master if watched is not None else self._first_master
        if not master or self._said[master] is None:
            if node == (master or node):
                self._replication.silent(now)
            return
        if node == master:
            self._replication.sampled(asked_at, _log_end(self._said[master]), self._reports(master))

    def _status(self, node: str, info: HARuntimeInfo, watched: WatchedGroup) -> FencedStatus:
        """A broker does not say its epoch: a master that the controller names has that one."""
        if info.master and watched.state is not None and watched.state.master == node:
            self._epochs[node] = watched.epoch
        end = _log_end(info)
        return FencedStatus(
            node=node,
            group=self._nodes[node].group,
            role=MASTER_ROLE if info.master else FOLLOWER_ROLE,
            epoch=self._epochs.get(node, 0),
            log_epoch=self._epochs.get(node, 0),
            master=watched.state.master if watched.state is not None else "",
            incarnation="",
            promised=0,
            log_start=0,
            log_end=end,
            flushed=end,
            confirm=NO_BOUND,
            min_isr=1,
            ack_level="",
            isr=watched.in_sync,
            lease_left_ms=1 if info.master else 0,
        )

    def _reports(self, master: str) -> list[SlaveReport]:
        """How far each broker is, by its own word; of an elected group, those in sync alone."""
        watched = self._watched
        master_end = _log_end(self._said[master])
        reports = []
        for name, info in self._said.items():
            counts = name == master or watched is None or name in watched.in_sync
            if info is None or not counts or (info.master and name != master):
                continue
            end = _log_end(info)
            lag = 0 if name == master else max(0, master_end - end)
            reports.append(SlaveReport(name, end, lag))
        return reports


def _log_end(info: HARuntimeInfo | None) -> int:
    if info is None:
        return 0
    return (
        info.master_commit_log_max_offset if info.master else info.ha_client_runtime_info.max_offset
    )


async def leader_of(controllers: Sequence[str]) -> str:
    """Return the controller that says it is the leader, "" if none does.

    The others answer request 1006 as well, with what they have been sent so far.
    """
    leaders: list[str] = []

    async def ask_one(controller: str) -> None:
        try:
            answer = await ask(controller, GET_METADATA_INFO)
            says = answer.ext_fields().get("isLeader")
        except (NoAnswerError, MalformedFrameError):
            return
        if answer.code == SUCCESS and says == "true":
            leaders.append(controller)

    async with trio.open_nursery() as nursery:
        for controller in controllers:
            nursery.start_soon(ask_one, controller)
    return leaders[0] if leaders else ""


async def watch_controllers(
    controllers: Sequence[str], group: str, brokers: WatchedBrokers, clock: Clock
) -> None:
    """Ask the leader of the controllers again and again, until cancelled."""
    while True:
        asked_at = clock.now()
        leader = controllers[0] if len(controllers) == 1 else await leader_of(controllers)
        state = await sync_state(leader, group) if leader else None
        brokers.controller_said(asked_at, clock.now(), state)
        await trio.sleep(POLL_SECONDS)


async def watch_broker(
    admin: AsksBroker, node: NodeSpec, brokers: WatchedBrokers, clock: Clock
) -> None:
    """Ask one broker again and again, until cancelled."""
    while True:
        asked_at = clock.now()
        info = None
        try:
            with trio.move_on_after(SILENT_SECONDS):
                info = await admin.ha_runtime_info(node.client_address)
        except ClientError:
            pass  # it is down
        brokers.broker_said(asked_at, clock.now(), node.name, info)
        await trio.sleep(POLL_SECONDS)


def as_given(given: Mapping[str, str], said: Mapping[str, str]) -> list[str]:
    """Return what a broker has otherwise than it was given, in words; the unknown, too."""
    others = {key: said.get(key) for key, value in given.items() if said.get(key) != value}
    return [
        f"{key}={given[key]} ({'it knows no such setting' if has is None else f'it has {has}'})"
        for key, has in others.items()
    ]
