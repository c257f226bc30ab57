"""/api/v1/messages: looking for messages, one message, its trace, and what became of it."""

from typing import Any, Final

from tandem.client.admin_results import FoundMessage
from tandem.console.asking import Asked
from tandem.console.errors import bad_parameter
from tandem.console.message_cursor import LIMIT_MAX, cursor_of, next_cursor
from tandem.console.message_json import listed, message_json
from tandem.console.parameters import NUMBER_MAX, Parameters
from tandem.life.result import Why
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY

QUEUE_ID_MAX: Final = (1 << 31) - 1

_WAYS: Final = ("id", "key", "queue", "begin_ms")


async def messages(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/messages."""
    query = asked.query()
    topic = query.text("topic")
    limit = query.number("limit", 1, LIMIT_MAX, LIMIT_MAX)
    ways = [way for way in _WAYS if query.has(way)]
    if "key" in ways:
        ways = [way for way in ways if way != "begin_ms"]
    if len(ways) != 1:
        raise bad_parameter("topic", f"give with it one of {', '.join(_WAYS)}")
    match ways[0]:
        case "id":
            message_id = query.text("id")
            query.end()
            found = await asked.admin.message(message_id, topic)
            return {"messages": [listed(FoundMessage("", found))], "cursor": None}
        case "key":
            return await _by_key(asked, query, topic, limit)
        case "queue":
            return await _of_queue(asked, query, topic, limit)
        case _:
            return await _by_time(asked, query, topic, limit)


async def message(asked: Asked, message_id: str) -> dict[str, Any]:
    """GET /api/v1/messages/ID."""
    topic = _topic(asked)
    return {"message": message_json(await asked.admin.message(message_id, topic))}


async def trace(asked: Asked, message_id: str) -> dict[str, Any]:
    """GET /api/v1/messages/ID/trace."""
    topic = _topic(asked)
    found = await asked.admin.trace_message(topic, message_id)
    key = found.message.properties.get(PROPERTY_UNIQUE_KEY)
    said = [] if key is None else await asked.admin.client_traces(key)
    return {"message": message_json(found.message), "groups": found.groups, "clients": said}


async def why(asked: Asked, message_id: str) -> Why:
    """GET /api/v1/messages/ID/why."""
    topic = _topic(asked)
    return await asked.admin.why(message_id, topic)


def _topic(asked: Asked) -> str:
    query = asked.query()
    topic = query.text("topic", "")
    query.end()
    return topic


async def _by_key(asked: Asked, query: Parameters, topic: str, limit: int) -> dict[str, Any]:
    key = query.text("key")
    begin_ms = query.number("begin_ms", 0, NUMBER_MAX, 0)
    end_ms = query.number("end_ms", 0, NUMBER_MAX, NUMBER_MAX)
    query.end()
    found = await asked.admin.messages_by_key(
        topic, key, count_max=limit, begin_ms=begin_ms, end_ms=end_ms
    )
    return {"messages": [listed(FoundMessage("", each)) for each in found], "cursor": None}


async def _of_queue(asked: Asked, query: Parameters, topic: str, limit: int) -> dict[str, Any]:
    queue_id = query.number("queue", 0, QUEUE_ID_MAX)
    broker_name = query.text("broker", "")
    offset = query.number("offset", 0, NUMBER_MAX, 0)
    cursor = query.number("cursor", 0, NUMBER_MAX, None)
    query.end()
    page = await asked.admin.page_of_queue(
        topic,
        queue_id,
        offset if cursor is None else cursor,
        broker_name=broker_name,
        count_max=limit,
    )
    is_over = page.is_whole or not page.messages
    following = None if is_over else str(page.messages[-1].message.queue_offset + 1)
    return {"messages": [*map(listed, page.messages)], "cursor": following}


async def _by_time(asked: Asked, query: Parameters, topic: str, limit: int) -> dict[str, Any]:
    begin_ms = query.number("begin_ms", 0, NUMBER_MAX)
    end_ms = query.number("end_ms", 0, NUMBER_MAX, NUMBER_MAX)
    from_ms, skip = cursor_of(query) or (begin_ms, 0)
    query.end()
    page = await asked.admin.page_by_time(
        topic, from_ms=from_ms, to_ms=end_ms, skip=skip, count_max=limit
    )
    cursor = next_cursor(page, from_ms, skip)
    return {"messages": [*map(listed, page.messages)], "cursor": cursor}
