"""Follows a master without counting as one of its slaves.

Whatever a slave reports, a RocketMQ master takes for an acknowledgement, also the first report,
which says where to begin. A shadow that comes back while a put waits, and has its bytes already,
would so acknowledge it. So it waits before it dials, until every put is over whose bytes it has:

    connection lost -- slaveTimeout and a margin after the last byte --> dial, report, follow

A master that lost the end of its log, and grew again, appends anew at offsets that the shadow has.
Where it can be asked, what counts is when its log was first seen to reach as far as the copy.

Source: RocketMQ 5.3.3, DefaultHAConnection.ReadSocketService, GroupTransferService.doWaitTransfer.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from ha.classic.config import HAConfig
from ha.classic.master_follower import MasterFollower
from ha.errors import LogDivergedError, MasterBehindError, OffsetMismatchError, RemoteHAError
from node.shadow.config import ShadowConfig
from node.shadow.errors import ShadowCause, ShadowError
from node.shadow.master_place import LogRange
from node.shadow.master_search import MasterSearch
from store import MessageStore
from store.machine.errors import StoreError
from store.machine.network import Network
from tandem.wire.message import Host

_log = logging.getLogger(__name__)

MARGIN_SECONDS: Final = 2.0
"""For a master's clock, its queue of waiting puts and what is on the wire."""

START_AGAIN: Final = (
    "To copy this master's log from where it begins, move the shadow's directory away and start"
    " again; to keep both, give another --directory"
)


class ShadowFollower(MasterFollower):
    """The follower of a shadow."""

    def __init__(
        self, config: ShadowConfig, store: MessageStore, network: Network, search: MasterSearch
    ) -> None:
        super().__init__(_ha_config(config), store, network, acknowledges=config.count_as_slave)
        self._search = search
        quiet_seconds = config.slave_timeout_ms / 1000 + MARGIN_SECONDS
        self._quiet_seconds = 0.0 if config.count_as_slave else quiet_seconds
        self.master_range: LogRange | None = None
        """What the master's log held when it was asked last."""

    @property
    def master_address(self) -> Host:
        """Where the master was dialled last."""
        return self._master

    async def find_master(self) -> Host:
        """Wait until a report can acknowledge nothing, then see where the master is.

        Raises:
            ConnectionLost: it cannot be found now.
            ShadowError: its log cannot be joined with ours.
        """
        where = await self._search.ha_address()
        quiet_since = self.traffic.last_read
        place = self._search.place
        if place is not None:
            self._check_file_size(place.commit_log_file_bytes)
            self.master_range = await self._search.log_range()
            self._check_range(self.master_range)
            quiet_since = trio.current_time()
        if self._store.max_physical_offset:
            await trio.sleep_until(quiet_since + self._quiet_seconds)
        return where

    def refuse(self, error: RemoteHAError | StoreError) -> None:
        """Give up where only a person can help; else say it and go on.

        Raises:
            ShadowError: this master's log does not continue ours.
        """
        if isinstance(error, LogDivergedError | MasterBehindError):
            text = f"the master at {self._master}: {error}. {START_AGAIN}"
            raise ShadowError(text, ShadowCause.OTHER_HISTORY) from error
        if isinstance(error, OffsetMismatchError):
            raise ShadowError(
                f"the master at {self._master} does not go on where this log ends: {error}."
                f" {START_AGAIN}",
                ShadowCause.OTHER_HISTORY,
            ) from error
        super().refuse(error)

    def _check_file_size(self, size_bytes: int) -> None:
        own = self._store.config.mapped_file_size_commit_log_bytes
        if size_bytes and size_bytes != own:
            raise ShadowError(
                f"the master's mappedFileSizeCommitLog is {size_bytes}, and the files here have"
                f" {own} bytes. {START_AGAIN}",
                ShadowCause.FILE_SIZE,
            )

    def _check_range(self, master: LogRange | None) -> None:
        end = self._store.max_physical_offset
        if master is None or not end:
            return
        if end > master.end:
            raise ShadowError(
                f"this log ends at {end}, the master's at {master.end}: the master has lost what"
                f" was copied from it, or another one took its place. {START_AGAIN}",
                ShadowCause.MASTER_LOST,
            )
        if end < master.start:
            raise ShadowError(
                f"this log ends at {end}, and the master has deleted its log up to"
                f" {master.start}: there is a gap. {START_AGAIN}",
                ShadowCause.GAP,
            )


def _ha_config(config: ShadowConfig) -> HAConfig:
    return HAConfig(
        name="shadow",
        address="",
        ha_port=0,
        master=config.master,
        ha_send_heartbeat_interval_ms=config.heartbeat_interval_ms,
        ha_housekeeping_interval_ms=config.housekeeping_interval_ms,
        ha_reconnect_interval_ms=config.reconnect_interval_ms,
    )
