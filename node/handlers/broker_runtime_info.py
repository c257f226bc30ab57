"""GET_BROKER_RUNTIME_INFO: what `clusterList` and `brokerStatus` print, by RocketMQ's names.

Its numbers are figures (`node.figures.broker_figures`); here they are written as the tools read
them.

What this broker does not have is 0 where the tools need a number (its thread pools: there are
none), and left out otherwise. Paths are nobody's business, so the ratio of each single directory is
left out, too.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo,
StoreStatsService.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from node.figures.broker_figures import broker_figures
from node.figures.families import PUT_STEPS, RUNTIME
from node.figures.sources import Sources
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from node.tables.put_times import distribution_text
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import KVTable
from tandem.wire.route import encode_json_body
from tandem.wire.system_topics import SCHEDULE_TOPIC

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
        sources: Of the figures of this node.
        delay_progress: The next offset by delay level.
    """

    def __init__(self, sources: Sources, *, delay_progress: Callable[[], dict[int, int]]) -> None:
        self._sources = sources
        self._store = sources.store
        self._delay_progress = delay_progress
        self._boot_ms = sources.wall_clock_ms()

    @serves(
        RequestCode.GET_BROKER_RUNTIME_INFO,
        (Resource.BROKER, Action.READ),
        of_cluster(Right.GET),
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO."""
        shown = {
            figure.name.removeprefix(RUNTIME): figure.value
            for figure in broker_figures(self._sources)
            if figure.name.startswith(RUNTIME)
        }
        table = {
            **dict.fromkeys(_ALWAYS_ZERO, "0"),
            **self._broker(),
            **{key: str(shown.get(name, 0)) for key, name in _NUMBERS.items()},
            **_traffic(shown, is_slave=self._store.is_slave),
            **self._log(shown),
            **self._delays(),
            **{f"notServed_{code}": str(count) for code, count in self._sources.not_served.items()},
        }
        return response_to(command, body=encode_json_body(KVTable(dict(sorted(table.items())))))

    def _broker(self) -> dict[str, str]:
        return {
            "brokerActive": "false" if self._store.is_slave else "true",
            "brokerVersion": BROKER_VERSION,
            "brokerVersionDesc": BROKER_VERSION_DESC,
            "bootTimestamp": str(self._boot_ms),
            "runtime": in_words(self._sources.wall_clock_ms() - self._boot_ms),
        }

    def _log(self, shown: Mapping[str, float]) -> dict[str, str]:
        store = self._store
        total = readable_bytes(shown["commitlogdir_capacity_total"])
        free = readable_bytes(shown["commitlogdir_capacity_free"])
        found = {
            "commitLogDiskRatio": str(shown.get("commitlog_disk_ratio", -1.0)),
            "consumeQueueDiskRatio": str(shown.get("consumequeue_disk_ratio", -1.0)),
            "commitLogDirCapacity": f"Total : {total}, Free : {free}.",
            "remainHowManyDataToFlush": readable_bytes(shown["remain_howmanydata_toflush"]),
            "earliestMessageTimeStamp": str(shown.get("earliest_message_timestamp", -1)),
            "commitLogDamage": store.commit_log.damage.in_words(),
            "commitLogScrub": store.scrub_service.progress.in_words(),
        }
        if not store.config.transient_store_pool_enable:
            found["remainTransientStoreBufferNumbs"] = NO_POOL_BUFFERS
        return found

    def _delays(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.reads.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in self._delay_progress().items()
        }


_NUMBERS: Final = {
    "putMessageSizeTotal": "put_message_size_total",
    "putMessageFailedTimes": "putmessage_failed_times",
    "msgPutTotalYesterdayMorning": "msg_puttotal_yesterdaymorning",
    "msgPutTotalTodayMorning": "msg_puttotal_todaymorning",
    "msgPutTotalTodayNow": "msg_put_total_today_now",
    "msgGetTotalYesterdayMorning": "msg_gettotal_yesterdaymorning",
    "msgGetTotalTodayMorning": "msg_gettotal_todaymorning",
    "msgGetTotalTodayNow": "msg_gettotal_today_now",
    "dispatchBehindBytes": "dispatch_behind_bytes",
    "commitLogMinOffset": "commitlog_minoffset",
    "commitLogMaxOffset": "commitlog_maxoffset",
}
"""Where the tools want a number whatever is known: 0 if it is not."""


def _traffic(shown: Mapping[str, float], *, is_slave: bool) -> dict[str, str]:
    counts = [shown.get(f"pmdt_{step}", 0) for step in PUT_STEPS]
    return {
        # The messages of a slave were not put there.
        "putTps": "0.0 0.0 0.0" if is_slave else tps_text(shown, "put"),
        "getFoundTps": tps_text(shown, "getfound"),
        "getMissTps": tps_text(shown, "getmiss"),
        "getTotalTps": tps_text(shown, "gettotal"),
        "getTransferredTps": tps_text(shown, "gettransfered"),
        "putMessageTimesTotal": str(max(1, shown.get("putmessage_times_total", 0))),
        "putMessageAverageSize": str(shown.get("put_message_average_size", 0.0)),
        "putMessageDistributeTime": distribution_text(counts),
        "putMessageEntireTimeMax": str(round(shown.get("putmessage_entire_time_max", 0))),
        "getMessageEntireTimeMax": str(round(shown.get("get_message_entire_time_max", 0))),
        "putLatency99": f"{shown.get('put_latency_99', 0.0):.2f}",
        "putLatency999": f"{shown.get('put_latency_999', 0.0):.2f}",
    }


def tps_text(shown: Mapping[str, float], what: str) -> str:
    """What happened in 10, 60 and 600 s, a second, separated by blanks; empty if not known."""
    rates = (shown.get(f"{what}_tps{seconds}") for seconds in (10, 60, 600))
    return " ".join("" if each is None else str(each) for each in rates)


def in_words(span_ms: int) -> str:
    """A time as RocketMQ writes it: `[ 0 days, 0 hours, 1 minutes, 4 seconds ]`."""
    minutes, seconds = divmod(max(0, span_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def readable_bytes(size: float) -> str:
    """A size with its unit, `2.0 KiB`. Source: UtilAll/MixAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size:.0f} B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < 5:
        value /= 1024
        unit += 1
    return f"{value:.1f} {'KMGTPE'[unit]}iB"
