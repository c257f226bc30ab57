"""The master's tasks: accept slaves, send them the log, take their reports. No rules in here.

    run -- accept --> a SlaveLink per connection --> _send_frames      log -> stream
     |                                           `-> _receive_reports  stream -> acknowledgements
     `- _expire_puts  answers puts whose time is up

The classic wire carries no identity. Slaves are told apart by the address they dial from: every
node of a cluster has one of its own, only those of the group's slaves are let in, and a newer
connection of a node replaces its older one.

Nothing on the way of a put waits for a timer: what is new is sent in the step in which the log
grows (`FrameSender`). Time limits are scopes around whole loops, moved on when they fire.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

import trio

from ha.classic.config import HAConfig
from ha.classic.group_transfer_service import GroupTransferService
from ha.classic.ha_connection import HAConnection, HAConnectionState
from ha.errors import RemoteHAError, SlaveAheadError, SlaveTooOldError
from ha.link.limits import REPORT_BYTES_READ_MAX
from ha.link.link_end import LinkEnd
from ha.link.sending import FrameSender
from ha.link.traffic import LinkTraffic
from store import StoreConfig
from store.machine.errors import ConnectionLost
from store.machine.network import Network, Stream
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.wire.message import Host

_log = logging.getLogger(__name__)


class ReadableLog(Protocol):
    """What slaves are sent: a whole log, or the part of it that counts. `MessageStore` is one."""

    grown: Signal

    @property
    def config(self) -> StoreConfig:
        """Of the store."""

    @property
    def min_physical_offset(self) -> int:
        """The first byte that can be sent."""

    @property
    def max_physical_offset(self) -> int:
        """The first byte that cannot be sent yet."""

    def read_log(self, offset: int, bytes_max: int) -> memoryview:
        """Return raw bytes of one file from `offset` on; empty if there is nothing yet."""


class SlaveLink:
    """One connection of one slave. Owned by the task that serves it."""

    def __init__(self, name: str, stream: Stream, connection: HAConnection) -> None:
        self.name = name
        self.peer: Host = stream.peer
        self.stream = stream
        self.connection = connection
        self.end = LinkEnd(ConnectionLost, RemoteHAError, on_end=connection.close)
        self.attached = trio.Event()
        self.traffic = LinkTraffic()


class SlaveServer:
    """Serves the slaves of one master."""

    def __init__(
        self,
        config: HAConfig,
        store: ReadableLog,
        network: Network,
        group_transfer_service: GroupTransferService,
    ) -> None:
        self._config = config
        self._store = store
        self._network = network
        self._group_transfer = group_transfer_service
        self._names = {slave.address: slave.name for slave in config.slaves}
        self._told: TellOnce[tuple[type[Exception], int]] = TellOnce()
        """Alarms by slave: the kind of error, and how far the slave was."""
        self.links: dict[str, SlaveLink] = {}
        """The newest connection of each connected slave, by node name."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            AddressInUseError: something else listens on the HA port.
        """
        listener = await self._network.listen(self._config.address, self._config.ha_port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_puts)
                task_status.started()
                while True:
                    stream = await listener.accept()
                    link = self._admit(stream)
                    if link is not None:
                        nursery.start_soon(self._serve, link)
        finally:
            await listener.aclose()

    def _admit(self, stream: Stream) -> SlaveLink | None:
        """Take a new connection in the place of the node's older one, or close it."""
        name = self._names.get(stream.peer.ip)
        if name is None:
            _log.warning(
                "%s is not the address of a slave of this group: refused. A slave dials from its"
                " own address in cluster.yaml",
                stream.peer.ip,
            )
            stream.close_nowait()
            return None
        connection = HAConnection(
            file_size_bytes=self._store.config.mapped_file_size_commit_log_bytes,
            sync_from_last_file=self._config.sync_from_last_file,
        )
        older = self.links.get(name)
        if older is not None:
            older.end.because(ConnectionLost(f"replaced by a newer connection from {stream.peer}"))
        link = self.links[name] = SlaveLink(name, stream, connection)
        self._group_transfer.slave_connected(name)
        return link

    async def _serve(self, link: SlaveLink) -> None:
        try:
            with link.end.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.end.guard, partial(self._send_frames, link))
                    nursery.start_soon(link.end.guard, partial(self._receive_reports, link))
        finally:
            link.connection.close()
            link.stream.close_nowait()
            self._leave(link)

    def _leave(self, link: SlaveLink) -> None:
        """Say why the link ended, and forget it unless a newer one has its place."""
        self._tell_end(link)
        if self.links.get(link.name) is link:
            del self.links[link.name]
            error = link.end.reason
            trouble = str(error) if isinstance(error, RemoteHAError) else ""
            self._group_transfer.slave_lost(link.name, trouble)

    # Master to slave

    async def _send_frames(self, link: SlaveLink) -> None:
        """Send what the log has, and a heartbeat when there was nothing to send for a while."""
        await link.attached.wait()
        heartbeat_seconds = self._config.ha_send_heartbeat_interval_ms / 1000
        traffic = link.traffic
        # A slave of ours waits for bytes to compare: let it know at once if there are none.
        await self._send_heartbeat(link)
        sender = self._sender(link)
        while link.connection.state is HAConnectionState.TRANSFER:
            with trio.CancelScope(deadline=traffic.last_write + heartbeat_seconds):
                await sender.send_until_blocked(self._store.grown)
            if sender.rest:
                with memoryview(sender.take_rest()) as view:
                    await link.stream.send_all(view)
                traffic.last_write = trio.current_time()
            elif traffic.wrote_nothing_for(heartbeat_seconds):
                await self._send_heartbeat(link)

    async def _send_heartbeat(self, link: SlaveLink) -> None:
        connection = link.connection
        # Bytes that are known to be bad are not sent: then there is nothing more, either.
        with self._store.read_log(connection.next_offset, 1) as view:
            dry = not view
        if dry and connection.state is HAConnectionState.TRANSFER:
            await link.stream.send_all(connection.heartbeat())
            link.traffic.last_write = trio.current_time()

    def _sender(self, link: SlaveLink) -> FrameSender:
        connection, store = link.connection, self._store
        frame_bytes = self._config.ha_transfer_batch_size_bytes

        def next_frame() -> tuple[bytes, memoryview] | None:
            body = store.read_log(connection.next_offset, frame_bytes)
            return (connection.transfer(len(body)), body) if body else None

        return FrameSender(
            link.stream,
            link.traffic,
            next_frame=next_frame,
            is_sending=lambda: connection.state is HAConnectionState.TRANSFER,
            has_arrived=lambda: connection.slave_ack_offset >= connection.next_offset,
        )

    # Slave to master

    async def _receive_reports(self, link: SlaveLink) -> None:
        await link.traffic.receive_until_silent(
            link.stream,
            REPORT_BYTES_READ_MAX,
            "the slave",
            silence_seconds=self._config.ha_housekeeping_interval_ms / 1000,
            silence="no report",
            take=partial(self._take_reports, link),
        )

    def _take_reports(self, link: SlaveLink, data: bytes) -> None:
        connection, store = link.connection, self._store
        before = connection.state
        acked = connection.take_report(data)
        if acked is None:
            acked = connection.receive_data(
                data, log_start=store.min_physical_offset, log_end=store.max_physical_offset
            )
        if acked is not None:
            alarm = self._told.last(link.name)
            if alarm is not None and acked > alarm[1]:
                self._told.over(link.name)
            self._group_transfer.slave_acked(link.name, acked)
        elif before is HAConnectionState.WAIT_REPORT and connection.state is not before:
            _log.info(
                "slave %s (%s) asks for the log from offset %d on; it ends at %d",
                link.name,
                link.peer,
                connection.slave_request_offset,
                store.max_physical_offset,
            )
            self._group_transfer.slave_attached(link.name, connection.slave_request_offset)
            link.attached.set()

    # Aside

    async def _expire_puts(self) -> None:
        """Answer puts whose deadline passed.

        A put submitted during a sleep cannot expire before its end, for every put waits as long
        as the sleep is: nothing has to wake this task.
        """
        put_seconds = self._config.slave_timeout_ms / 1000
        while True:
            deadline = self._group_transfer.next_deadline()
            await trio.sleep_until(
                trio.current_time() + put_seconds if deadline is None else deadline
            )
            self._group_transfer.expire(trio.current_time())

    def _tell_end(self, link: SlaveLink) -> None:
        error = link.end.reason
        if error is None:
            return
        acked = link.connection.slave_ack_offset
        if isinstance(error, ConnectionLost):
            _log.warning("slave %s (%s) lost at %d: %s", link.name, link.peer, acked, error)
            return
        # Once, until it gets further: the slave dials again every few seconds.
        if self._told.is_news((type(error), acked), about=link.name):
            _log.error("slave %s (%s) %s. %s", link.name, link.peer, error, _remedy(error))


def _remedy(error: Exception) -> str:
    if isinstance(error, SlaveAheadError):
        return (
            "The slave holds messages that this master has not. Either make that node the master,"
            " or, to give them up: stop it, move its store directory away, start it again; it then"
            " copies the whole log"
        )
    if isinstance(error, SlaveTooOldError):
        return (
            "What it lacks was deleted here: it cannot catch up, however often it dials. Stop it,"
            " move its store directory away, start it again; it then copies what this master has."
            " Files that are kept for longer (file_reserved_time_hours) outlast a longer absence"
        )
    return "The connection was closed; the slave dials again"
