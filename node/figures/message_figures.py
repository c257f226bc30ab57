"""Figures of each topic, and of each group in each topic: what came, and what went out.

What came is counted by every node, so it has figures on the master alone: their sum over all nodes
is what clients have sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.figures.figure import Figure, Labels
from node.figures.sources import Sources
from node.tables.broker_stats import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from node.tables.stats_item import StatsItem
from node.tables.topic_attributes import MESSAGE_TYPE


def message_figures(sources: Sources) -> Iterator[Figure]:
    """Yield them, one family after the other."""
    stats = sources.stats
    if not sources.store.is_slave:
        for family, exporters, items in (
            ("rocketmq_messages_in_total", "rocketmq_producer_tps", TOPIC_PUT_NUMS),
            (
                "rocketmq_throughput_in_total",
                "rocketmq_producer_message_size",
                TOPIC_PUT_SIZE,
            ),
        ):
            for topic, item in stats.items(items):
                yield Figure(family, sources.of_topic(topic, _type_of(sources, topic)), item.value)
            if sources.with_exporter_names:
                for topic, item in stats.items(items):
                    yield Figure(exporters, Labels(topic=topic), item.minute.tps)
        if sources.with_exporter_names:
            yield from _ends(sources)
    yield from _of_groups(
        sources, "rocketmq_messages_out_total", "rocketmq_consumer_tps", GROUP_GET_NUMS
    )
    yield from _of_groups(
        sources, "rocketmq_throughput_out_total", "rocketmq_consumer_message_size", GROUP_GET_SIZE
    )
    yield from _of_groups(
        sources, "tandem_messages_sent_back_total", "rocketmq_send_back_nums", SNDBCK_PUT_NUMS
    )


def _of_groups(sources: Sources, family: str, exporters: str, items: str) -> Iterator[Figure]:
    found: list[tuple[str, str, StatsItem]] = []
    for key, item in sources.stats.items(items):
        topic, _, group = key.partition("@")
        found.append((topic, group, item))
        yield Figure(family, sources.of_group(topic, group), item.value)
    for topic, group, item in found if sources.with_exporter_names else ():
        yield Figure(exporters, Labels(topic=topic, group=group), item.minute.tps)


def _type_of(sources: Sources, topic: str) -> str:
    """As RocketMQ writes it; a topic does not say of each message what it is."""
    config = sources.tables.topics.get(topic)
    attributes = config.attributes if config is not None else None
    return (attributes or {}).get(MESSAGE_TYPE, "UNSPECIFIED").lower()


def _ends(sources: Sources) -> Iterator[Figure]:
    reads = sources.store.reads
    for topic, config in list(sources.tables.topics.configs.topic_config_table.items()):
        ends = [reads.max_offset_in_queue(topic, each) for each in range(config.write_queue_nums)]
        yield Figure("rocketmq_producer_offset", Labels(topic=topic), sum(ends))
