"""Learners of a fenced group: classic slaves, RocketMQ's own among them, that copy its log.

A classic slave cannot cut its log. So it gets what is confirmed and nothing else: no change of
master takes that back. It is never counted: not for an acknowledgement, not for a majority.
"""

from __future__ import annotations

import trio

from ha.classic.config import HAConfig
from ha.classic.group_transfer_service import GroupTransferService
from ha.classic.slave_server import SlaveServer
from store import MessageStore, StoreConfig
from store.machine.network import Network


class ConfirmedLog:
    """The part of a log that no change of master takes back; what a `SlaveServer` reads."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.grown = store.confirmed

    @property
    def config(self) -> StoreConfig:
        """Of the store."""
        return self._store.config

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that is held."""
        return self._store.min_physical_offset

    @property
    def max_physical_offset(self) -> int:
        """The first byte that is not confirmed."""
        return max(self._store.confirm_offset, self.min_physical_offset)

    def read_log(self, offset: int, bytes_max: int) -> memoryview:
        """Return confirmed bytes of one file from `offset` on; see `CommitLog.read`."""
        return self._store.read_log(
            offset, max(0, min(bytes_max, self.max_physical_offset - offset))
        )


class Learners:
    """The classic port of one round of a node. Without learners in its group nothing listens.

    Learners are served once `won_an_epoch` is set; there is no way back but the round's end.
    """

    def __init__(
        self,
        config: HAConfig,
        store: MessageStore,
        network: Network,
        won_an_epoch: trio.Event,
    ) -> None:
        self._config = config
        self._network = network
        self._log = ConfirmedLog(store)
        self._won_an_epoch = won_an_epoch

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            AddressInUseError: something else listens on the HA port.
        """
        if not self._config.slaves:
            return
        await self._won_an_epoch.wait()
        transfer = GroupTransferService(
            [slave.name for slave in self._config.slaves],
            max_gap_bytes=self._config.ha_max_gap_not_in_sync_bytes,
        )
        await SlaveServer(self._config, self._log, self._network, transfer).run()
