"""Figures of a broker as a whole: its traffic, its log, its disk.

Those that GET_BROKER_RUNTIME_INFO shows have the names of rocketmq-exporter, which reads them from
there; `runtime_info` finds them again by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from node.figures.families import PUT_STEPS, RUNTIME
from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.sources import Sources
from node.tables.broker_stats import (
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
)
from node.tables.stats_item import TpsHistory
from store.machine.disk import DiskSpace

_STORAGE: Final = Labels(storage_type="local", storage_medium="disk")

READ: Final = 4
WRITE: Final = 2


def broker_figures(sources: Sources) -> Iterator[Figure]:
    """Yield them; what has come by now is counted first."""
    sources.refresh()
    yield from _traffic(sources)
    yield from _log(sources)
    yield from _disks(sources)
    yield from _tables(sources)


def _own(name: str, value: float) -> Figure:
    return Figure(name, NO_LABELS, value)


def _shown(name: str, value: float) -> Figure:
    return Figure(RUNTIME + name, NO_LABELS, value)


def _traffic(sources: Sources) -> Iterator[Figure]:
    stats, times = sources.stats, sources.put_times
    yield from _rates("getfound", stats.found_tps)
    yield from _rates("getmiss", stats.missed_tps)
    yield from _rates("gettotal", stats.found_tps, stats.missed_tps)
    yield from _rates("gettransfered", stats.transferred_tps)
    yield _shown("get_message_entire_time_max", stats.longest_get_seconds * 1000)
    gets = stats.get_totals
    yield _shown("msg_gettotal_yesterdaymorning", gets.yesterday_morning)
    yield _shown("msg_gettotal_todaymorning", gets.today_morning)
    yield _shown("msg_gettotal_today_now", gets.now)
    yield _own("tandem_pulls_found_total", stats.found)
    yield _own("tandem_pulls_missed_total", stats.missed)
    yield _own("rocketmq_broker_qps", stats.total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC).minute.tps)
    yield _own("tandem_puts_refused_total", times.failed_count)
    yield _shown("putmessage_failed_times", times.failed_count)
    if not sources.store.is_slave:
        yield from _puts(sources)


def _puts(sources: Sources) -> Iterator[Figure]:
    """What came; the messages of other nodes were not put there."""
    stats, times = sources.stats, sources.put_times
    messages, size = stats.put_messages, stats.put_bytes
    yield from _rates("put", stats.put_tps)
    yield _own("rocketmq_broker_tps", stats.total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC).minute.tps)
    yield _shown("putmessage_times_total", messages)
    yield _shown("put_message_size_total", size)
    if messages:
        yield _shown("put_message_average_size", size / messages)
    for step, count in zip(PUT_STEPS, times.counts(messages), strict=True):
        yield _shown(f"pmdt_{step}", count)
    yield _shown("putmessage_entire_time_max", times.max_ms)
    yield _shown("put_latency_99", times.percentile_ms(messages, 0.99))
    yield _shown("put_latency_999", times.percentile_ms(messages, 0.999))
    puts = stats.put_totals
    yield _shown("msg_puttotal_yesterdaymorning", puts.yesterday_morning)
    yield _shown("msg_puttotal_todaymorning", puts.today_morning)
    yield _shown("msg_put_total_today_now", puts.now)


def _rates(what: str, *histories: TpsHistory) -> Iterator[Figure]:
    columns = zip(*(history.tps() for history in histories), strict=True)
    for seconds, column in zip((10, 60, 600), columns, strict=True):
        known = [each for each in column if each is not None]
        if len(known) == len(column):
            yield _shown(f"{what}_tps{seconds}", sum(known))


def _log(sources: Sources) -> Iterator[Figure]:
    store = sources.store
    first, end, confirmed = store.min_physical_offset, store.max_physical_offset, 0
    confirmed = store.confirm_offset
    flushed, behind = store.flushed_where, end - store.dispatched_offset
    yield Figure("rocketmq_storage_size_bytes", _STORAGE, end - first)
    yield Figure("rocketmq_storage_flush_behind_bytes", _STORAGE, max(0, end - flushed))
    yield _shown("remain_howmanydata_toflush", max(0, end - flushed))
    yield Figure("rocketmq_storage_dispatch_behind_bytes", _STORAGE, behind)
    yield _shown("dispatch_behind_bytes", behind)
    yield _own("tandem_log_start_bytes", first)
    yield _shown("commitlog_minoffset", first)
    yield _own("tandem_log_end_bytes", end)
    yield _own("tandem_log_flushed_bytes", flushed)
    yield _own("tandem_log_confirmed_bytes", confirmed)
    yield _shown("commitlog_maxoffset", confirmed)
    yield _own("tandem_log_bad_bytes", store.commit_log.damage.bad_bytes)
    if first < confirmed:
        earliest_ms = store.commit_log.store_timestamp_ms(first)
        if earliest_ms > 0:
            yield _shown("earliest_message_timestamp", earliest_ms)
            yield Figure(
                "rocketmq_storage_message_reserve_time_milliseconds",
                _STORAGE,
                max(0, sources.wall_clock_ms() - earliest_ms),
            )
    yield _own("tandem_queues", store.queues.count)


def _disks(sources: Sources) -> Iterator[Figure]:
    config = sources.store.config
    spaces = [sources.disk.space(each) for each in config.commit_log_directories]
    # Of several directories the emptiest counts: the next file goes there.
    log_space = min(spaces, key=used_ratio)
    total = log_space.used_bytes + log_space.usable_bytes
    if total > 0:
        yield _shown("commitlog_disk_ratio", used_ratio(log_space))
    yield _shown("commitlogdir_capacity_total", total)
    yield _shown("commitlogdir_capacity_free", log_space.usable_bytes)
    yield _own("tandem_disk_used_bytes", log_space.used_bytes)
    yield _own("tandem_disk_usable_bytes", log_space.usable_bytes)
    queue_space = sources.disk.space(f"{config.directory}/consumequeue")
    if queue_space.used_bytes + queue_space.usable_bytes > 0:
        yield _shown("consumequeue_disk_ratio", used_ratio(queue_space))


def _tables(sources: Sources) -> Iterator[Figure]:
    is_refused = sources.why_refused is not None
    yield _own("rocketmq_broker_permission", READ if is_refused else READ | WRITE)
    yield _own("rocketmq_topic_number", len(sources.tables.topics.configs.topic_config_table))
    groups = sources.tables.groups.configs.subscription_group_table
    yield _own("rocketmq_consumer_group_number", len(groups))


def used_ratio(space: DiskSpace) -> float:
    """How full it is; -1 where there is nothing."""
    total = space.used_bytes + space.usable_bytes
    return space.used_bytes / total if total > 0 else -1.0
