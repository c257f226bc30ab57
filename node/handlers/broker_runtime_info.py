"""GET_BROKER_RUNTIME_INFO: what `clusterList` and `brokerStatus` print, by RocketMQ's names.

What this broker does not have is 0 where the tools need a number (its thread pools: there are
none), and left out otherwise (how long single gets take: nobody measures that). Paths are nobody's
business, so the ratio of each single directory is left out, too.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo,
StoreStatsService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from tandem.wire.access_control import Right
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import KVTable
from tandem.wire.route import encode_json_body
from tandem.wire.system_topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.remoting.connection import Connection
    from node.tables.broker_stats import BrokerStats
    from node.tables.put_times import PutTimes
    from node.tables.stats_item import TpsHistory
    from store import MessageStore
    from store.machine.disk import Disk, DiskSpace
    from tandem.wire.remoting_command import RemotingCommand

BROKER_VERSION: Final = "479"
BROKER_VERSION_DESC: Final = "V5_3_3"
"""Whose requests are served: clients ask for it."""

NO_POOL_BUFFERS: Final = str((1 << 31) - 1)

_ALWAYS_ZERO: Final = (
    "pageCacheLockTimeMills",
    "startAcceptSendRequestTimeStamp",
    "dispatchMaxBuffer",
    *(
        f"{pool}ThreadPoolQueue{what}"
        for pool in ("send", "pull", "litePull", "query", "ack")
        for what in ("Size", "HeadWaitTimeMills", "Capacity")
    ),
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
)


class BrokerRuntimeInfo:
    """Serves that request.

    Args:
        store: Of this node.
        stats: Of this node.
        disk: Where the store is.
        refresh: Has `stats` count what has come by now.
        delay_progress: The next offset by delay level.
        put_times: How long puts waited.
        not_served: How often codes without a handler were asked for.
        wall_clock_ms: The wall clock; what it says now counts as the time of the boot.
    """

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        disk: Disk,
        *,
        refresh: Callable[[], None],
        delay_progress: Callable[[], dict[int, int]],
        put_times: PutTimes,
        not_served: Mapping[int, int],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._stats = stats
        self._disk = disk
        self._refresh = refresh
        self._delay_progress = delay_progress
        self._put_times = put_times
        self._not_served = not_served
        self._wall_clock_ms = wall_clock_ms
        self._boot_ms = wall_clock_ms()

    @serves(
        RequestCode.GET_BROKER_RUNTIME_INFO,
        (Resource.BROKER, Action.READ),
        of_cluster(Right.GET),
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO."""
        self._refresh()
        table = {
            **dict.fromkeys(_ALWAYS_ZERO, "0"),
            **self._broker(),
            **self._traffic(),
            **self._log(),
            **self._delays(),
            **{f"notServed_{code}": str(count) for code, count in self._not_served.items()},
        }
        return response_to(command, body=encode_json_body(KVTable(dict(sorted(table.items())))))

    def _broker(self) -> dict[str, str]:
        return {
            "brokerActive": "false" if self._store.is_slave else "true",
            "brokerVersion": BROKER_VERSION,
            "brokerVersionDesc": BROKER_VERSION_DESC,
            "bootTimestamp": str(self._boot_ms),
            "runtime": in_words(self._wall_clock_ms() - self._boot_ms),
        }

    def _traffic(self) -> dict[str, str]:
        stats, puts, gets = self._stats, self._stats.put_totals, self._stats.get_totals
        messages, size, times = stats.put_messages, stats.put_bytes, self._put_times
        if self._store.is_slave:
            # Its messages were not put here.
            puts, messages, size = type(puts)(), 0, 0
        no_tps = "0.0 0.0 0.0"
        return {
            "putTps": no_tps if self._store.is_slave else tps_text(stats.put_tps),
            "getFoundTps": tps_text(stats.found_tps),
            "getMissTps": tps_text(stats.missed_tps),
            "getTotalTps": tps_text(stats.found_tps, stats.missed_tps),
            "getTransferredTps": tps_text(stats.transferred_tps),
            "putMessageTimesTotal": str(max(1, messages)),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / max(1, messages)),
            "putMessageFailedTimes": str(times.failed_count),
            "putMessageDistributeTime": times.distribution(messages),
            "putMessageEntireTimeMax": str(round(times.max_ms)),
            "putLatency99": f"{times.percentile_ms(messages, 0.99):.2f}",
            "putLatency999": f"{times.percentile_ms(messages, 0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(puts.yesterday_morning),
            "msgPutTotalTodayMorning": str(puts.today_morning),
            "msgPutTotalTodayNow": str(puts.now),
            "msgGetTotalYesterdayMorning": str(gets.yesterday_morning),
            "msgGetTotalTodayMorning": str(gets.today_morning),
            "msgGetTotalTodayNow": str(gets.now),
        }

    def _log(self) -> dict[str, str]:
        store, config = self._store, self._store.config
        first, end = store.min_physical_offset, store.confirm_offset
        spaces = [self._disk.space(each) for each in config.commit_log_directories]
        # Of several directories the emptiest counts: the next file goes there.
        log_space = min(spaces, key=_used_ratio)
        queue_space = self._disk.space(f"{config.directory}/consumequeue")
        total = log_space.used_bytes + log_space.usable_bytes
        found = {
            "dispatchBehindBytes": str(store.max_physical_offset - store.dispatched_offset),
            "commitLogMinOffset": str(first),
            "commitLogMaxOffset": str(end),
            "commitLogDiskRatio": str(_used_ratio(log_space)),
            "consumeQueueDiskRatio": str(_used_ratio(queue_space)),
            "commitLogDirCapacity": (
                f"Total : {readable_bytes(total)}, Free : {readable_bytes(log_space.usable_bytes)}."
            ),
            "remainHowManyDataToFlush": readable_bytes(
                max(0, store.max_physical_offset - store.flushed_where)
            ),
            "earliestMessageTimeStamp": str(
                store.commit_log.store_timestamp_ms(first) if first < end else -1
            ),
        }
        damage, scrub = store.commit_log.damage.in_words(), store.scrub_service.progress.in_words()
        found |= {"commitLogDamage": damage, "commitLogScrub": scrub}
        if not config.transient_store_pool_enable:
            found["remainTransientStoreBufferNumbs"] = NO_POOL_BUFFERS
        return found

    def _delays(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.reads.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in self._delay_progress().items()
        }


def tps_text(*histories: TpsHistory) -> str:
    """The sums of 10, 60 and 600 s a second, separated by blanks; what is not known is empty."""
    columns = zip(*(history.tps() for history in histories), strict=True)
    return " ".join(
        "" if any(each is None for each in column) else str(sum(each or 0.0 for each in column))
        for column in columns
    )


def in_words(span_ms: int) -> str:
    """A time as RocketMQ writes it: `[ 0 days, 0 hours, 1 minutes, 4 seconds ]`."""
    minutes, seconds = divmod(max(0, span_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def readable_bytes(size: int) -> str:
    """A size with its unit, `2.0 KiB`. Source: UtilAll/MixAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < 5:
        value /= 1024
        unit += 1
    return f"{value:.1f} {'KMGTPE'[unit]}iB"


def _used_ratio(space: DiskSpace) -> float:
    total = space.used_bytes + space.usable_bytes
    return space.used_bytes / total if total > 0 else -1.0
