"""A whole shadow: its store, the tables that it copies, the following, and what is said about it.

DIRECTORY/shadow.json     whose shadow this is: a store without it is somebody else's
         /commitlog, /consumequeue, /index, ...       as of any store
         /config/topics.json, subscriptionGroup.json, consumerOffset.json
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.shadow.config import ShadowConfig
from node.shadow.errors import ShadowCause, ShadowError
from node.shadow.follower import ShadowFollower
from node.shadow.master_search import Found, MasterSearch
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.slave_synchronize import copy_tables
from store import MessageStore, StoreConfig
from store.machine.errors import ConnectionLost, TableFileError
from store.machine.machine import Machine
from store.machine.network import Network
from store.machine.table_file import TableFile
from store.machine.tell_once import TellOnce
from store.machine.tls_network import TLSNetwork, TLSTerms
from tandem.tls_files import TLSFileError
from tandem.wire.message import Host

_log = logging.getLogger(__name__)

SAY_SECONDS: Final = 1.0
FILE_BYTES_DEFAULT: Final = 1 << 30
"""Source: MessageStoreConfig.mappedFileSizeCommitLog."""
MESSAGE_BYTES_DEFAULT: Final = 16 << 20
"""Where nobody says it: four times RocketMQ's default, so that a master may be set to more."""


class ShadowOf(msgspec.Struct, frozen=True):
    """The content of `shadow.json`."""

    broker_name: str = ""
    """Empty where there was no name server to tell it."""
    commit_log_file_bytes: int = 0


class ShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a shadow says once a second, as a line of JSON."""

    state: str
    """`searching`, `following`, or at the end `stopped`."""
    broker: str
    master: str
    log_start: int
    log_end: int
    behind_bytes: int | None
    """How much of the master's log is still to be copied; None if the master was not asked."""
    bytes_per_second: int
    topics: int


async def run_shadow(
    config: ShadowConfig,
    machine: Machine,
    stop: trio.Event,
    say: Callable[[ShadowStatus], None],
) -> None:
    """Follow until `stop` is set.

    Raises:
        ShadowError: the master or the directory is not what it has to be.
        StoreError: the store cannot be opened, or its disk has failed.
        ConnectionLost: nobody says where the master is, at the very start.
    """
    mark = TableFile(machine.disk, f"{config.directory}/shadow.json")
    known = _claimed(config, machine, mark)
    search = MasterSearch(config, _asking(config, machine.network), known.broker_name)
    found = await _found(search, known)
    tables = PlainTables(
        PlainFiles(machine.disk, config.directory, machine.wall_clock_ms, auto_create_groups=False)
    )
    store = MessageStore.open(
        _store_config(config, known, found),
        disk=machine.disk,
        wall_clock_ms=machine.wall_clock_ms,
        store_host=Host("127.0.0.1", 0),
        is_slave=True,
        is_batch_topic=tables.topics.is_batch,
    )
    with store:
        size = store.config.mapped_file_size_commit_log_bytes
        mark.save(ShadowOf(found.broker_name, size))
        shadow = _Shadow(config, store, tables, search, machine, say)
        try:
            await shadow.run(stop)
        finally:
            tables.save()


def _asking(config: ShadowConfig, network: Network) -> Network:
    """The network on which questions are asked.

    Raises:
        ShadowError: a file of TLS cannot be used.
    """
    if config.tls is None:
        return network
    try:
        dialling = config.tls.client_context()
    except TLSFileError as error:
        raise ShadowError(str(error), ShadowCause.TLS) from error
    return TLSNetwork(network, TLSTerms(None, dialling, takes_clear=False, dials_clear=False))


def _claimed(config: ShadowConfig, machine: Machine, mark: TableFile) -> ShadowOf:
    """Return whose shadow the directory holds.

    Raises:
        ShadowError: a store is there that is no shadow's.
        TableFileError: `shadow.json` cannot be read.
    """
    known = mark.load(ShadowOf)
    if known is not None:
        return known
    if machine.disk.list_files(f"{config.directory}/commitlog"):
        raise ShadowError(
            f"{config.directory} holds a store that is no shadow's: it has no shadow.json. Give a"
            " directory that is empty, or not there yet",
            ShadowCause.OTHER_STORE,
        )
    return ShadowOf()


async def _found(search: MasterSearch, known: ShadowOf) -> Found:
    """Ask for the broker's name and sizes; what the directory knows is enough to begin with.

    Raises:
        ShadowError: the directory is the shadow of another broker.
        ConnectionLost: it is empty, and nobody answers.
    """
    if not search.is_possible:
        return Found(known.broker_name)
    try:
        place = await search.find()
    except ConnectionLost:
        if not known.commit_log_file_bytes:
            raise
        return Found(known.broker_name)
    if known.broker_name and known.broker_name != place.broker_name:
        raise ShadowError(
            f"this directory is the shadow of broker {known.broker_name}, not of"
            f" {place.broker_name}: give each its own --directory",
            ShadowCause.OTHER_BROKER,
        )
    return Found(place.broker_name, place.commit_log_file_bytes, place.max_message_bytes)


def _store_config(config: ShadowConfig, known: ShadowOf, found: Found) -> StoreConfig:
    return StoreConfig(
        directory=config.directory,
        mapped_file_size_commit_log_bytes=known.commit_log_file_bytes
        or config.commit_log_file_bytes
        or found.commit_log_file_bytes
        or FILE_BYTES_DEFAULT,
        max_message_size_bytes=found.max_message_bytes or MESSAGE_BYTES_DEFAULT,
        file_reserved_time_hours=config.file_reserved_time_hours,
        delete_when=config.delete_hours,
        disk_max_used_space_ratio=config.disk_max_used_space_ratio,
        max_hash_slot_num=config.max_hash_slot_num,
        max_index_num=config.max_index_num,
    )


class _Shadow:
    """The tasks of one."""

    def __init__(
        self,
        config: ShadowConfig,
        store: MessageStore,
        tables: PlainTables,
        search: MasterSearch,
        machine: Machine,
        say: Callable[[ShadowStatus], None],
    ) -> None:
        self._config = config
        self._store = store
        self._tables = tables
        self._search = search
        self._say = say
        self._follower = ShadowFollower(config, store, machine.network, search)
        self._told: TellOnce[str] = TellOnce()

    async def run(self, stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._store.run)
            if self._search.is_possible:
                # Before the first record: the attributes of a topic say which queues it has.
                await self._copy_tables()
                nursery.start_soon(self._go_on_copying_tables)
            nursery.start_soon(self._follower.run)
            nursery.start_soon(self._go_on_saying)
            await stop.wait()
            nursery.cancel_scope.cancel()
        self._say(msgspec.structs.replace(self._status(), state="stopped"))

    async def _go_on_copying_tables(self) -> None:
        while True:
            await trio.sleep(self._config.synchronize_interval_ms / 1000)
            await self._copy_tables()

    async def _copy_tables(self) -> None:
        tables = self._tables
        try:
            async with self._search.master() as client:
                await copy_tables(client.request, tables.topics, tables.groups, tables.offsets)
        except (ConnectionLost, RequestError, TableFileError) as error:
            if self._told.is_news(str(error)):
                _log.warning("topics, groups and offsets are not copied now: %s", error)
            return
        self._told.over()
        tables.save()

    async def _go_on_saying(self) -> None:
        while True:
            if self._follower.is_following and self._search.is_possible:
                try:
                    self._follower.master_range = await self._search.log_range()
                except ConnectionLost:
                    self._follower.master_range = None
            self._say(self._status())
            await trio.sleep(SAY_SECONDS)

    def _status(self) -> ShadowStatus:
        follower, place = self._follower, self._search.place
        end = self._store.max_physical_offset
        master = follower.master_range
        rate = follower.traffic.rate.in_last_second(trio.current_time())
        return ShadowStatus(
            state="following" if follower.is_following else "searching",
            broker=place.broker_name if place is not None else "",
            master=str(follower.master_address),
            log_start=self._store.min_physical_offset,
            log_end=end,
            behind_bytes=None if master is None else max(master.end - end, 0),
            bytes_per_second=rate,
            topics=len(self._tables.topics.configs.topic_config_table),
        )
