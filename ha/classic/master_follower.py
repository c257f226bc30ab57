"""The slave's task: dial the master, append what it sends, report. No rules in here.

One task does all of it, so nothing can be reported that was not appended, and no two reports can
mix. One report answers everything that one read brought.

Whatever goes wrong, the connection ends and the next begins after the reconnect interval. A slave
that cannot go on (its disk is full, its log is another history) says so to the master before it
hangs up, so that an operator sees the reason where he looks first. Each kind of trouble is logged
once, until something else happens.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from ha.classic.config import HAConfig
from ha.classic.ha_client import HAClient, HAClientState
from ha.classic.protocol import encode_refusal
from ha.errors import LogDivergedError, MasterBehindError, RemoteHAError
from ha.link.dial import dial
from ha.link.limits import RECEIVE_BYTES_MAX
from ha.link.sending import say_good_bye, send_in_time
from ha.link.traffic import LinkTraffic
from store import MessageStore
from store.machine.errors import ConnectionLost, StoreError
from store.machine.network import Network, Stream
from store.machine.tell_once import TellOnce
from tandem.wire.message import RECORD_OVERHEAD_BYTES_MAX, Host

_log = logging.getLogger(__name__)

OVERLAP_BYTES_MAX: Final = 8 * 1024 * 1024
"""More than the largest record; a bound on what is compared when a connection begins."""

CONNECT_SECONDS: Final = 5.0
"""Source: DefaultHAClient.connectMaster, RemotingHelper.connect."""

FAREWELL_SECONDS: Final = 1.0


class MasterFollower:
    """Follows the master of one slave.

    A shadow is one that no master counts as a slave (see `HAClient`), finds its master itself
    (`find_master`) and gives up for good where a slave waits for an operator (`refuse`).
    """

    def __init__(
        self,
        config: HAConfig,
        store: MessageStore,
        network: Network,
        *,
        acknowledges: bool = True,
    ) -> None:
        assert config.master is not None
        self._config = config
        self._master = config.master
        self._store = store
        self._network = network
        self._last_record_offset = store.last_record_offset
        self._told: TellOnce[str] = TellOnce()
        self._told_level = logging.NOTSET
        self._following = False
        self.client = HAClient(
            file_size_bytes=store.config.mapped_file_size_commit_log_bytes,
            record_bytes_max=store.config.max_message_size_bytes + RECORD_OVERHEAD_BYTES_MAX,
            check_crc=config.check_crc_on_append,
            acknowledges=acknowledges,
        )
        self.traffic = LinkTraffic()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the master, connection after connection, until cancelled."""
        task_status.started()
        while True:
            stream = await self._dial()
            if stream is not None:
                try:
                    await self._follow_or_refuse(stream)
                finally:
                    stream.close_nowait()
                    if self.client.state is not HAClientState.READY:
                        self.client.connection_lost()
            await trio.sleep(self._config.ha_reconnect_interval_ms / 1000)

    @property
    def is_following(self) -> bool:
        """Whether the master has spoken, and its bytes are being taken."""
        return self._following and self.client.state is HAClientState.TRANSFER

    async def find_master(self) -> Host:
        """Return where the master listens; it is asked before each connection.

        Raises:
            ConnectionLost: it cannot be found now.
        """
        return self._master

    def refuse(self, error: RemoteHAError | StoreError) -> None:
        """Say why this master's log cannot be taken. It is tried again, unless this raises."""
        self._tell(logging.ERROR, f"{error}. {_remedy(error)}")

    async def _dial(self) -> Stream | None:
        try:
            self._master = await self.find_master()
            return await dial(
                self._network,
                self._master,
                source=self._config.address or None,
                seconds=CONNECT_SECONDS,
            )
        except ConnectionLost as error:
            self._tell(logging.WARNING, str(error))
        return None

    async def _follow_or_refuse(self, stream: Stream) -> None:
        try:
            await self._follow(stream)
        except ConnectionLost as error:
            self._tell(logging.WARNING, str(error))
        except (RemoteHAError, StoreError) as error:
            self.refuse(error)
            with trio.move_on_after(FAREWELL_SECONDS):
                await say_good_bye(stream, encode_refusal(self._store.max_physical_offset))

    async def _follow(self, stream: Stream) -> None:
        """Use one connection until it ends.

        Raises:
            ConnectionLost: the stream ended or broke, or the master fell silent.
            RemoteHAError: the master sent what cannot be taken; nothing of it was.
            StoreError: the log does not take it.
        """
        store, traffic = self._store, self.traffic
        self._following = False
        first_report = self.client.connected(store.max_physical_offset, self._last_record())
        traffic.last_read = trio.current_time()
        await self._send(stream, first_report)
        silence_seconds = self._config.ha_housekeeping_interval_ms / 1000
        heartbeat_seconds = self._config.ha_send_heartbeat_interval_ms / 1000
        while True:
            rest: bytes | None = None
            deadline = min(
                traffic.last_write + heartbeat_seconds, traffic.last_read + silence_seconds
            )
            with trio.CancelScope(deadline=deadline):
                rest = await self._receive_until_blocked(stream)
            now = trio.current_time()
            if now >= traffic.last_read + silence_seconds:
                raise ConnectionLost(f"the master sent nothing for {silence_seconds:g} seconds")
            if rest is None and now >= traffic.last_write + heartbeat_seconds:
                rest = self.client.heartbeat(store.max_physical_offset)
                traffic.last_write = now
            if rest:
                await self._send(stream, rest)

    async def _receive_until_blocked(self, stream: Stream) -> bytes:
        """Append and report until a report does not fit into the stream; return its rest.

        It may be cancelled at any await: there, no report is half sent.
        """
        traffic, rest = self.traffic, b""

        def take(data: bytes) -> bool:
            nonlocal rest
            now = traffic.last_read = trio.current_time()
            traffic.rate.add(len(data), now)
            try:
                report = self._append(data)
                if report is not None:
                    traffic.last_write = now
                    rest = report[stream.send_nowait(report) :]
            finally:
                # After the report: the master waits for that, and for nothing else.
                self._store.announce()
            return not rest

        if not await stream.receive_while(RECEIVE_BYTES_MAX, take):
            raise ConnectionLost("the master closed the connection")
        return rest

    def _append(self, data: bytes) -> bytes | None:
        """Append all whole records received; return the report that is due."""
        client, store = self.client, self._store
        client.receive_data(data)
        while (event := client.next_event()) is not None:
            store.append_data(event.offset, event.body)
            self._last_record_offset = event.last_record_offset
            self._told_level = logging.NOTSET
        if not self._following and client.state is HAClientState.TRANSFER:
            # A store whose disk has failed takes nothing; then nothing may be acknowledged either.
            store.append_data(store.max_physical_offset, b"")
            self._tell_following()
        return client.report(store.max_physical_offset)

    def _last_record(self) -> bytes:
        """Return our log from the start of its last record on."""
        store = self._store
        log_end = store.max_physical_offset
        start = max(self._last_record_offset, log_end - OVERLAP_BYTES_MAX)
        if self._last_record_offset < 0:
            return b""
        record = bytearray()
        while start + len(record) < log_end:
            with store.read_log(start + len(record), OVERLAP_BYTES_MAX) as part:
                record += part
        return bytes(record)

    async def _send(self, stream: Stream, report: bytes) -> None:
        silence_seconds = self._config.ha_housekeeping_interval_ms / 1000
        await send_in_time(
            stream, report, seconds=silence_seconds, refusal="the master took no report"
        )
        self.traffic.last_write = trio.current_time()

    def _tell_following(self) -> None:
        """Log that all is well again; after an error only once something was appended."""
        if self._told_level >= logging.ERROR:
            return
        self._following = True
        self._told.over()
        _log.info(
            "this node follows master %s; its log ends at %d",
            self._master,
            self._store.max_physical_offset,
        )

    def _tell(self, level: int, text: str) -> None:
        """Log a trouble, once."""
        if not self._told.is_news(text):
            return
        self._told_level = level
        seconds = self._config.ha_reconnect_interval_ms / 1000
        _log.log(
            level,
            "this node does not follow master %s: %s. Trying every %g s",
            self._master,
            text,
            seconds,
        )


def _remedy(error: RemoteHAError | StoreError) -> str:
    if isinstance(error, LogDivergedError | MasterBehindError):
        return (
            "Nothing was appended. This log is not a part of the master's. Either make this node"
            " the master, or, to give up what only it has: stop it, move its store directory away,"
            " start it again; it then copies the whole log"
        )
    return "Nothing of it was acknowledged"
