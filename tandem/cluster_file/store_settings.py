"""`store:` of cluster.yaml: the settings of every node's store, and what they mean to each other.

Names are RocketMQ's in Python's spelling, with the unit. Where a default differs from RocketMQ's,
cluster.yaml says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from tandem.cluster_file.choices import FlushDiskType
from tandem.cluster_file.ranges import milliseconds, size_bytes, text_like, whole_number
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL, DelayLevels
from tandem.wire.message import END_FILE_MIN_BLANK_LENGTH, RECORD_OVERHEAD_BYTES_MAX
from tandem.wire.store_layout import (
    CQ_STORE_UNIT_SIZE,
    INDEX_UNIT_BYTES,
    PAGE_BYTES,
    compaction_file_sizes,
    index_file_bytes,
)

if TYPE_CHECKING:
    from tandem.cluster_file.yaml_reader import Reader


MAPPED_FILE_BYTES_MAX: Final = (1 << 31) - 1
"""The most that Java maps of one file."""

DELAY_LEVEL_MS_MAX: Final = 366 * 86_400_000
"""Ours: a longer delay is a slip of the pen."""

DISK_MAX_USED_SPACE_RATIOS: Final = (10, 95)
DISK_SPACE_CLEAN_FORCIBLY_RATIOS: Final = (30, 100)
DISK_SPACE_WARNING_LEVEL_RATIOS: Final = (35, 100)
"""What the watermarks may be, both included."""

_PERCENT: Final = "percent"

_HOURS: Final = r"^([01]?[0-9]|2[0-3])(;([01]?[0-9]|2[0-3]))*$"

Hours = (
    Annotated[int, whole_number(0, 23, "an hour")]
    | Annotated[str, text_like(_HOURS, "hours such as '04;16'")]
)
"""YAML takes 04 for a number; several hours are text, in RocketMQ's spelling."""


class StoreSettings(Struct, frozen=True):
    """`store:` of the file; the same on every node, for the logs are copied byte by byte."""

    mapped_file_size_commit_log_bytes: Annotated[int, size_bytes(PAGE_BYTES, 1 << 31)] = 67_108_864
    mapped_file_size_consume_queue_bytes: Annotated[int, size_bytes(20, 1 << 30)] = 6_000_000
    open_queue_files_max: Annotated[int, whole_number(64, 30_000, "files")] = 4_096
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext_bytes: Annotated[int, size_bytes(PAGE_BYTES, 1 << 30)] = (
        1_048_576
    )
    max_message_size_bytes: Annotated[int, size_bytes(1, 15 * 1024 * 1024)] = 4_194_304
    message_delay_level: str = MESSAGE_DELAY_LEVEL
    timer_wheel_enable: bool = False
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log_ms: Annotated[int, milliseconds(1)] = 500
    flush_commit_log_least_pages: Annotated[int, whole_number(0, 65_536, "pages")] = 4
    flush_commit_log_thorough_interval_ms: Annotated[int, milliseconds(1)] = 10_000
    flush_interval_consume_queue_ms: Annotated[int, milliseconds(1)] = 1_000
    sync_flush_timeout_ms: Annotated[int, milliseconds(1)] = 5_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: Annotated[int, whole_number(1, 64, "buffers")] = 5
    warm_mapped_file_enable: bool = False
    message_index_enable: bool = True
    max_hash_slot_num: Annotated[int, whole_number(1, 100_000_000, "slots")] = 500_000
    max_index_num: Annotated[int, whole_number(2, 100_000_000, "entries")] = 2_000_000
    enable_compaction: bool = True
    compaction_mapped_file_size_bytes: Annotated[int, size_bytes(PAGE_BYTES, 1 << 30)] = 104_857_600
    compaction_cq_mapped_file_size_bytes: Annotated[int, size_bytes(460, 1 << 28)] = 10_485_760
    compaction_schedule_internal_ms: Annotated[int, milliseconds(1)] = 900_000
    max_offset_map_size_bytes: Annotated[int, size_bytes(PAGE_BYTES, 1 << 32)] = 104_857_600
    scrub_interval_hours: Annotated[int, whole_number(0, 87_600, "hours")] = 168
    skip_damaged_records: bool = False
    delete_when: Hours = "04"
    file_reserved_time_hours: Annotated[int, whole_number(0, 876_000, "hours")] = 72
    disk_max_used_space_ratio: Annotated[
        int, whole_number(*DISK_MAX_USED_SPACE_RATIOS, _PERCENT)
    ] = 75
    disk_space_clean_forcibly_ratio: Annotated[
        int, whole_number(*DISK_SPACE_CLEAN_FORCIBLY_RATIOS, _PERCENT)
    ] = 98
    disk_space_warning_level_ratio: Annotated[
        int, whole_number(*DISK_SPACE_WARNING_LEVEL_RATIOS, _PERCENT)
    ] = 99
    clean_resource_interval_ms: Annotated[int, milliseconds(1)] = 10_000

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of `delete_when`."""
        return tuple(map(int, str(self.delete_when).split(";")))


def check_store(reader: Reader, store: StoreSettings) -> None:
    """Complain about settings that do not go together, each at its line."""
    _check_log_sizes(reader, store)
    _check_index_size(reader, store)
    _check_prop_crc(reader, store)
    _check_delay_levels(reader, store)
    _check_watermarks(reader, store)
    _check_pool(reader, store)
    if store.flush_commit_log_thorough_interval_ms < store.flush_interval_commit_log_ms:
        reader.complain(
            "store.flush_commit_log_thorough_interval_ms",
            f"{store.flush_commit_log_thorough_interval_ms} is below"
            f" store.flush_interval_commit_log_ms ({store.flush_interval_commit_log_ms});"
            " give at least as much",
        )


def _check_pool(reader: Reader, store: StoreSettings) -> None:
    if store.transient_store_pool_enable and store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        reader.complain(
            "store.transient_store_pool_enable",
            "a put that waits for the disk gains nothing from a buffer before it;"
            " set store.flush_disk_type to ASYNC_FLUSH, or leave the pool out",
        )


def _check_log_sizes(reader: Reader, store: StoreSettings) -> None:
    """File sizes: whole pages, whole units, and room for the biggest record."""
    commit_log = store.mapped_file_size_commit_log_bytes
    if commit_log % PAGE_BYTES:
        reader.complain(
            "store.mapped_file_size_commit_log_bytes",
            f"{commit_log} is not a multiple of {PAGE_BYTES} (a memory page);"
            f" give {_round_up(commit_log, PAGE_BYTES)}",
        )
    consume_queue = store.mapped_file_size_consume_queue_bytes
    if consume_queue % CQ_STORE_UNIT_SIZE:
        reader.complain(
            "store.mapped_file_size_consume_queue_bytes",
            f"{consume_queue} is not a multiple of {CQ_STORE_UNIT_SIZE} (one unit);"
            f" give {_round_up(consume_queue, CQ_STORE_UNIT_SIZE)}",
        )
    needed = store.max_message_size_bytes + RECORD_OVERHEAD_BYTES_MAX + END_FILE_MIN_BLANK_LENGTH
    if commit_log < needed:
        reader.complain(
            "store.mapped_file_size_commit_log_bytes",
            f"{commit_log} is too small for a message of store.max_message_size_bytes"
            f" ({store.max_message_size_bytes}); give at least {_round_up(needed, PAGE_BYTES)},"
            " or lower the message size",
        )
    _check_compaction_sizes(reader, store, needed)


def _check_compaction_sizes(reader: Reader, store: StoreSettings, needed: int) -> None:
    """A file of a compaction topic has room for the biggest record."""
    size = compaction_file_sizes(
        store.compaction_mapped_file_size_bytes, store.compaction_cq_mapped_file_size_bytes
    ).log
    if store.enable_compaction and size < needed:
        reader.complain(
            "store.compaction_mapped_file_size_bytes",
            f"{size} bytes, made of whole files of units, are too few for a message of"
            f" store.max_message_size_bytes ({store.max_message_size_bytes}); give at least"
            f" {needed}, or lower the message size",
        )


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _check_index_size(reader: Reader, store: StoreSettings) -> None:
    size = index_file_bytes(store.max_hash_slot_num, store.max_index_num)
    if size > MAPPED_FILE_BYTES_MAX:
        room = MAPPED_FILE_BYTES_MAX - index_file_bytes(store.max_hash_slot_num, 0)
        fits = room // INDEX_UNIT_BYTES
        reader.complain(
            "store.max_index_num",
            f"an index file of {store.max_hash_slot_num} slots and {store.max_index_num} entries"
            f" would take {size} bytes, more than Java maps; give at most {fits}",
        )


def _check_prop_crc(reader: Reader, store: StoreSettings) -> None:
    if store.force_verify_prop_crc and not store.enabled_append_prop_crc:
        reader.complain(
            "store.force_verify_prop_crc",
            "recovery would cut the log at the first record, for none has the checksum;"
            " set store.enabled_append_prop_crc too, before there are records",
        )


def _check_delay_levels(reader: Reader, store: StoreSettings) -> None:
    key = "store.message_delay_level"
    try:
        delays_ms = DelayLevels(store.message_delay_level).delays_ms
    except ValueError as error:
        reader.complain(key, str(error).removeprefix("message_delay_level: "))
        return
    if max(delays_ms) > DELAY_LEVEL_MS_MAX:
        reader.complain(
            key, f"level {delays_ms.index(max(delays_ms)) + 1} is above a year; give at most 366d"
        )


def _check_watermarks(reader: Reader, store: StoreSettings) -> None:
    most, forcibly = store.disk_max_used_space_ratio, store.disk_space_clean_forcibly_ratio
    if forcibly < most:
        reader.complain(
            "store.disk_space_clean_forcibly_ratio",
            f"{forcibly} is below store.disk_max_used_space_ratio ({most}): files would be deleted"
            " whatever their age before the expired ones are; give at least as much",
        )
    if store.disk_space_warning_level_ratio < forcibly:
        reader.complain(
            "store.disk_space_warning_level_ratio",
            f"{store.disk_space_warning_level_ratio} is below store.disk_space_clean_forcibly_ratio"
            f" ({forcibly}): messages would be refused before anything is done for room;"
            " give at least as much",
        )
