"""StoreConfig: the settings of one store, under RocketMQ's names and with its defaults.

docs/store.md says what each one costs. Source: MessageStoreConfig of 5.3.3.
"""

import msgspec

from tandem.cluster_file.choices import FlushDiskType
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL


class StoreConfig(msgspec.Struct, frozen=True):
    """Settings of one store. Sizes in bytes, times in the unit of their name.

    The size of a consume queue file is rounded up to whole units of 20 bytes, of a batch consume
    queue file to whole units of 46; for those of compaction topics see `compaction_file_sizes`.
    """

    directory: str
    # -- files
    store_path_commit_log: tuple[str, ...] = ()
    """Directories of the commit log's files; empty: `<directory>/commitlog`."""
    read_only_commit_log_store_paths: tuple[str, ...] = ()
    """Directories among or beside those in which no file is ever created."""
    mapped_file_size_commit_log_bytes: int = 1 << 30
    mapped_file_size_consume_queue_bytes: int = 6_000_000
    mapper_file_size_batch_consume_queue_bytes: int = 13_800_000
    open_queue_files_max: int = 4_096
    """How many files of queues are open at once: two descriptors and a mapping each. Ours."""
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext_bytes: int = 50_331_648
    warm_mapped_file_enable: bool = False
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    # -- messages
    max_message_size_bytes: int = 4 << 20
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    check_crc_on_recover: bool = True
    message_delay_level: str = MESSAGE_DELAY_LEVEL
    timer_wheel_enable: bool = False
    """Whether the owner of the store runs a `TimerMessageStore` beside it. RocketMQ: true."""
    os_page_cache_busy_timeout_ms: int = 1_000
    # -- flush
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    commit_interval_commit_log_ms: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval_ms: int = 200
    flush_interval_consume_queue_ms: int = 1_000
    # -- index
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    """The most messages one query by key returns."""
    # -- compaction topics
    enable_compaction: bool = True
    compaction_mapped_file_size_bytes: int = 104_857_600
    compaction_cq_mapped_file_size_bytes: int = 10_485_760
    compaction_schedule_internal_ms: int = 900_000
    """RocketMQ's spelling."""
    max_offset_map_size_bytes: int = 104_857_600
    """Memory for the keys of one compaction; the rest is compacted by the next."""
    # -- damage
    skip_damaged_records: bool = False
    """Whether readers go on without a record that is damaged. RocketMQ hands it out."""
    # -- scrub
    scrub_interval_hours: float = 168
    """In this time all of the log is read and checked once; 0: only when it is ordered. Ours."""
    # -- cleaning
    delete_when: tuple[int, ...] = (4,)
    """Local hours at which files past their time are deleted."""
    file_reserved_time_hours: int = 72
    delete_commit_log_files_interval_ms: int = 100
    delete_consume_queue_files_interval_ms: int = 100
    delete_file_batch_max: int = 10
    destroy_mapped_file_interval_forcibly_ms: int = 120_000
    redelete_hanged_file_interval_ms: int = 120_000
    clean_resource_interval_ms: int = 10_000
    clean_file_forcibly_enable: bool = True
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90

    @property
    def commit_log_directories(self) -> tuple[str, ...]:
        """Where files of the commit log are created and found."""
        return self.store_path_commit_log or (f"{self.directory}/commitlog",)
