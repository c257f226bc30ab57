"""What a run is like, whichever kind of group plays it. A seed draws it; a scenario writes it."""

import random
from typing import ClassVar, Final

import msgspec

from tandem.cluster_file.choices import FlushDiskType
from tandem.cluster_file.settings import ReplicationSettings
from tandem.cluster_file.store_settings import StoreSettings
from tandem.tls_files import TLSFiles
from tests.sim.engine.faults import Instruction
from tests.sim.engine.workload import ProducerProfile

GROUP: Final = "broker-a"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of group have."""

    option: ClassVar[str] = ""
    """What `scripts/simulate` needs to know beside the name; ends with a space."""

    name: str
    """What replays it: the seed, or the name of a scenario."""
    seed: int
    node_count: int = 3
    plan: tuple[Instruction, ...]
    store: StoreSettings
    replication: ReplicationSettings
    producers: tuple[ProducerProfile, ...]
    load_seconds: float
    delay_seconds_max: float
    """Of a healthy link."""
    tls: TLSFiles | None = None
    """With it all connections have TLS. Then nobody reads off the wire what nodes answer; and as
    OpenSSL chooses the keys, no two runs are the same."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(f"{GROUP}-{index}" for index in range(self.node_count))

    def terms(self) -> str:
        """One line for a person: what the group is like."""
        return f"{self.node_count} nodes, {self.store.flush_disk_type.name}"


def draw_store(
    chance: random.Random, *, sync_flush: bool, flush_intervals_ms: tuple[int, ...]
) -> StoreSettings:
    """Draw small files and various flushes."""
    return StoreSettings(
        mapped_file_size_commit_log_bytes=chance.choice((4096, 8192, 32_768)),
        mapped_file_size_consume_queue_bytes=chance.choice((400, 2000)),
        max_message_size_bytes=2048,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
        flush_interval_commit_log_ms=chance.choice(flush_intervals_ms),
        flush_commit_log_least_pages=chance.choice((0, 4)),
        flush_commit_log_thorough_interval_ms=chance.choice((500, 5_000)),
        flush_interval_consume_queue_ms=chance.choice((200, 1_000)),
        sync_flush_timeout_ms=700,
    )


def scripted_store(drawn: StoreSettings, flush: FlushDiskType) -> StoreSettings:
    """Return what a seed drew, with what the outcome of a scenario depends on always the same."""
    return msgspec.structs.replace(
        drawn,
        flush_disk_type=flush,
        mapped_file_size_commit_log_bytes=8192,
        flush_interval_commit_log_ms=500,
        flush_commit_log_thorough_interval_ms=500,
    )
