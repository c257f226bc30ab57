"""How far consumer groups are behind: every group that has committed an offset, online or not.

    first offset      committed        given out         end
        |================|----in flight----|----ready------|
                         '------------- lag ---------------'

Only the master knows it, while nothing says that it may not: another node has older offsets and
ends. What nobody knows has no figure:

    a topic that is no more                    nothing of the group in that topic
    a queue without an offset of the group     not counted: nobody knows where it would begin
    a damaged record at the offset             no time; the number of messages is known

A group that is past the end of a queue takes nothing off its lag in others; see
`tandem.wire.lag`. How far it is past the ends is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from node.figures.figure import Figure, Labels
from node.figures.sources import Sources
from node.tables.consumer_offset_table import TOPIC_GROUP_SEPARATOR
from store.machine.errors import RecordDamagedError
from tandem.wire.lag import total_lag

TIMES_KEPT_MAX: Final = 65_536
"""Store times of records that groups wait at: each is read from the log once."""


class GroupLag(NamedTuple):
    """How far a group is behind in a topic. None is unknown."""

    topic: str
    group: str
    messages: int
    latency_ms: int | None
    in_flight: int | None
    ready: int | None
    past_end: int
    offset: int


LAG: Final = "rocketmq_consumer_lag_messages"

_OTHERS: Final[dict[str, Callable[[GroupLag], int | None]]] = {
    "rocketmq_consumer_lag_latency_milliseconds": lambda lag: lag.latency_ms,
    "rocketmq_consumer_inflight_messages": lambda lag: lag.in_flight,
    "rocketmq_consumer_ready_messages": lambda lag: lag.ready,
    "tandem_consumer_past_end_messages": lambda lag: lag.past_end,
}


class GroupLags:
    """The lag of all groups of one broker."""

    def __init__(self) -> None:
        self._stored_ms: dict[tuple[str, int, int], int] = {}
        """By topic, queue and offset."""

    def figures(self, sources: Sources) -> Iterator[Figure]:
        """Yield them, as far as this node knows."""
        if sources.replication.why_behind() is not None:
            return
        now_ms = sources.wall_clock_ms()
        kept: dict[tuple[str, int, int], int] = {}
        found: list[GroupLag] = []
        for key, queues in sources.tables.offsets.views():
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if not queues or sources.tables.topics.get(topic) is None:
                continue
            lag = self._lag(sources, topic, group, dict(queues), now_ms, kept)
            found.append(lag)
            yield Figure(LAG, sources.of_group(topic, group), lag.messages)
        self._stored_ms = kept
        for family, value_of in _OTHERS.items():
            for lag in found:
                if (value := value_of(lag)) is not None:
                    yield Figure(family, sources.of_group(lag.topic, lag.group), value)
        if sources.with_exporter_names:
            yield from _exporters(sources, found)

    def _lag(
        self,
        sources: Sources,
        topic: str,
        group: str,
        queues: dict[int, int],
        now_ms: int,
        kept: dict[tuple[str, int, int], int],
    ) -> GroupLag:
        reads, stats = sources.store.reads, sources.stats
        lags, in_flight, has_pulled = [], 0, False
        oldest_ms: int | None = now_ms
        for queue_id, offset in queues.items():
            lag = reads.max_offset_in_queue(topic, queue_id) - offset
            lags.append(lag)
            if lag <= 0:
                continue
            pulled = stats.pull_offset(group, topic, queue_id)
            has_pulled = has_pulled or pulled > 0
            in_flight += min(lag, max(0, pulled - offset))
            # What is before the first message has been deleted: the group goes on at that one.
            first = max(offset, reads.min_offset_in_queue(topic, queue_id))
            stored_ms = self._stored(sources, (topic, queue_id, first), kept)
            if oldest_ms is not None:
                oldest_ms = None if stored_ms is None else min(oldest_ms, stored_ms)
        messages = total_lag(lags)
        behind = max(0, messages)
        return GroupLag(
            topic,
            group,
            messages,
            None if oldest_ms is None else now_ms - oldest_ms,
            # What was given out by another process, as that of an earlier master, nobody knows.
            in_flight if has_pulled or not behind else None,
            behind - in_flight if has_pulled or not behind else None,
            -sum(each for each in lags if each < 0),
            sum(queues.values()),
        )

    def _stored(
        self,
        sources: Sources,
        place: tuple[str, int, int],
        kept: dict[tuple[str, int, int], int],
    ) -> int | None:
        """When the first message that is not consumed was stored; None if nobody knows."""
        stored_ms = self._stored_ms.get(place)
        if stored_ms is None:
            try:
                stored_ms = sources.store.reads.message_store_timestamp_ms(*place)
            except RecordDamagedError:
                return None
            if stored_ms < 0:
                return None
        if len(kept) < TIMES_KEPT_MAX:
            kept[place] = stored_ms
        return stored_ms


def _exporters(sources: Sources, lags: list[GroupLag]) -> Iterator[Figure]:
    for lag in lags:
        labels = Labels(topic=lag.topic, group=lag.group)
        yield Figure("rocketmq_consumer_offset", labels, lag.offset)
    for lag in lags:
        consumption = sources.clients.consumption(lag.group)
        online = Labels(
            topic=lag.topic,
            group=lag.group,
            countOfOnlineConsumers=str(len(sources.clients.client_ids(lag.group))),
            msgModel=_MODELS.get(consumption.message_model, "0") if consumption else "0",
        )
        yield Figure("rocketmq_group_diff", online, lag.messages)
    for lag in lags:
        if lag.latency_ms is not None:
            labels = Labels(topic=lag.topic, group=lag.group)
            yield Figure("rocketmq_group_get_latency_by_storetime", labels, lag.latency_ms)


_MODELS: Final = {"BROADCASTING": "0", "CLUSTERING": "1"}
