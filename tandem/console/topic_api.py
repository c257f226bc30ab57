"""/api/v1/topics."""

from typing import Any, Final

import msgspec

from tandem.client.admin_results import TopicDescription, TopicQueue
from tandem.client.errors import BrokerError, RouteNotFoundError
from tandem.client.topic_admin import is_of_system
from tandem.console.asking import Asked
from tandem.console.cluster_errors import is_refusal
from tandem.wire.route import ClusterInfo
from tandem.wire.system_topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

LIST_MAX: Final = 1_000
LIST_DEFAULT: Final = 200
COUNTED_MAX: Final = 50
QUEUES_MAX: Final = 1_000
OFFSET_MAX: Final = 1 << 31


class Paging(msgspec.Struct, frozen=True):
    """Which part of a list is wanted: of names that have `filter` in them, in any case."""

    offset: int
    limit: int
    filter: str
    with_system: bool

    def wants(self, name: str) -> bool:
        """Whether a name is in the list."""
        return self.filter.casefold() in name.casefold()


async def topics(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/topics."""
    query = asked.query()
    has_counts = query.flag("counts")
    most = COUNTED_MAX if has_counts else LIST_MAX
    paging = Paging(
        query.number("offset", 0, OFFSET_MAX, 0),
        query.number("limit", 1, most, min(most, LIST_DEFAULT)),
        query.text("filter", ""),
        query.flag("system"),
    )
    query.end()
    info = await asked.admin.cluster_info()
    names = [
        name
        for name in await asked.admin.topics()
        if paging.wants(name) and (paging.with_system or not is_of_system(name, info))
    ]
    shown = names[paging.offset : paging.offset + paging.limit]
    rows: list[dict[str, Any]] = []
    for name in shown:
        counts = _counts(await _queues(asked, name)) if has_counts else {}
        rows.append({"topic": name, "kind": kind_of(name, info), **counts})
    return {
        "topics": rows, "total": len(names), "offset": paging.offset, "limit": paging.limit
    }  # fmt: skip


async def topic(asked: Asked, name: str) -> dict[str, Any]:
    """GET /api/v1/topics/NAME."""
    asked.query().end()
    found: TopicDescription = await asked.admin.describe_topic(name)
    info = await asked.admin.cluster_info()
    queues = found.queues[:QUEUES_MAX]
    return {
        "topic": found.topic,
        "kind": kind_of(found.topic, info),
        "message_count": found.message_count,
        "groups": found.groups,
        "brokers": found.brokers,
        "queues": [
            {**msgspec.structs.asdict(each), "message_count": each.message_count} for each in queues
        ],
        "queues_left_out": len(found.queues) - len(queues),
    }


def kind_of(topic: str, info: ClusterInfo) -> str:
    """Return what a topic is for."""
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return "dead_letters"
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return "retries"
    return "system" if is_of_system(topic, info) else "topic"


async def _queues(asked: Asked, topic: str) -> list[TopicQueue] | None:
    """Return the queues of a topic; None if it is gone, or not for this user."""
    try:
        return await asked.admin.topic_queues(topic)
    except RouteNotFoundError as error:
        if error.may_pass:
            raise
        return None
    except BrokerError as error:
        if not is_refusal(error):
            raise
        return None


def _counts(queues: list[TopicQueue] | None) -> dict[str, int | None]:
    if queues is None:
        return {"queues": None, "messages": None, "last_store_timestamp_ms": None}
    times = [each.last_store_timestamp_ms or 0 for each in queues]
    return {
        "queues": len(queues),
        "messages": sum(each.message_count for each in queues),
        "last_store_timestamp_ms": max(times, default=0) or None,
    }
