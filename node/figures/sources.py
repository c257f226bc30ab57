"""Where figures come from: the parts of one broker, for as long as its store is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ha.replication import Replication
from node.figures.figure import Figure, Labels, LabelsOf
from node.tables.broker_stats import ITEMS_MAX, BrokerStats
from node.tables.client_table import ClientTable
from node.tables.producer_table import ProducerTable
from node.tables.put_times import PutTimes
from node.tables.tables import Tables
from store import MessageStore
from store.machine.disk import Disk
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX, is_system_topic


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one broker that figures are read from. Nothing of it is changed.

    Attributes:
        refresh: Has `stats` count what has come by now.
        live: Figures of what the broker does at the moment; only it knows them.
        not_served: How often codes without a handler were asked for.
        with_exporter_names: Whether topics and groups have figures by rocketmq-exporter's names.
    """

    store: MessageStore
    tables: Tables
    clients: ClientTable
    producers: ProducerTable
    stats: BrokerStats
    put_times: PutTimes
    replication: Replication
    disk: Disk
    wall_clock_ms: Callable[[], int]
    refresh: Callable[[], None]
    live: Callable[[], Iterable[Figure]]
    not_served: Mapping[int, int]
    of_topic: LabelsOf
    of_group: LabelsOf
    with_exporter_names: bool = False

    @property
    def why_refused(self) -> str | None:
        """Why no message is taken: by the role of this node, or by its store; None if all are."""
        refusal = self.replication.refusal() or self.store.refusal
        return None if refusal is None else refusal.text


def _of_topic(topic: str, message_type: str) -> Labels:
    return Labels(
        topic=topic, message_type=message_type, is_system=_boolean(value=is_system_topic(topic))
    )


def _of_group(topic: str, group: str) -> Labels:
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    return Labels(
        topic=topic,
        consumer_group=group,
        is_retry=_boolean(value=is_retry),
        is_system=_boolean(value=is_system_topic(topic)),
    )


def _boolean(*, value: bool) -> str:
    return "true" if value else "false"


def topic_labels() -> LabelsOf:
    """The labels of a topic and the type of its messages."""
    return LabelsOf(_of_topic, ITEMS_MAX)


def group_labels() -> LabelsOf:
    """The labels of a topic and a consumer group that reads it."""
    return LabelsOf(_of_group, ITEMS_MAX)
