"""/api/v1/groups, and the reset of a group in two steps."""

from typing import Any, Final

import msgspec

from tandem.client.admin_results import GroupQueue, OffsetChange
from tandem.client.errors import BrokerError, RouteNotFoundError
from tandem.client.group_admin import ResetTo, is_group_of_system
from tandem.console.asking import Asked, random_text, wall_ms
from tandem.console.cluster_errors import is_refusal
from tandem.console.errors import bad_parameter
from tandem.console.parameters import NUMBER_MAX
from tandem.console.plans import PLAN_SECONDS
from tandem.wire.system_topics import dlq_topic

LIST_MAX: Final = 1_000
LIST_DEFAULT: Final = 200
OFFSET_MAX: Final = 1 << 31
QUEUES_MAX: Final = 1_000

_WITH_NUMBER: Final = frozenset({ResetTo.TIME, ResetTo.OFFSET})


async def groups(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/groups."""
    query = asked.query()
    offset = query.number("offset", 0, OFFSET_MAX, 0)
    limit = query.number("limit", 1, LIST_MAX, LIST_DEFAULT)
    part = query.text("filter", "").casefold()
    with_system = query.flag("system")
    query.end()
    found = [
        each
        for each in await asked.account.groups.fresh()
        if part in each.group.casefold() and (with_system or not is_group_of_system(each.group))
    ]
    return {
        "groups": found[offset : offset + limit],
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "at_ms": wall_ms(),
    }


async def group(asked: Asked, name: str) -> dict[str, Any]:
    """GET /api/v1/groups/NAME."""
    asked.query().end()
    found = await asked.admin.describe_group(name)
    queues = found.queues[:QUEUES_MAX]
    return {
        "group": found.group,
        "lag": found.lag,
        "message_model": found.message_model,
        "consume_type": found.consume_type,
        "subscriptions": found.subscriptions,
        "dead_letters": await _dead_letters(asked, name),
        "members": found.members,
        "queues": [_queue(each) for each in queues],
        "queues_left_out": len(found.queues) - len(queues),
    }


async def reset(asked: Asked, name: str) -> dict[str, Any]:
    """POST /api/v1/groups/NAME/reset: a plan, or with its number what it says."""
    fields = asked.fields()
    if fields.has("topic"):
        return await _plan(asked, name)
    number, typed = fields.text("number"), fields.text("name")
    fields.end()
    kept = asked.logged_in.plans.take(number, name, typed, asked.console.clock())
    plan = kept.plan
    order = f"group {plan.group} is reset in topic {kept.topic}, {len(plan.changes)} queues"
    with asked.noting(order):
        way = await asked.admin.apply_reset(plan)
    return {
        "done": {
            "group": plan.group,
            "topic": kept.topic,
            "way": way.value,
            "members_count": plan.members_count,
            "changes": plan.changes,
        }
    }


async def _plan(asked: Asked, name: str) -> dict[str, Any]:
    fields = asked.fields()
    topic, where = fields.text("topic"), fields.text("to")
    number = fields.number("number", 0, NUMBER_MAX, None)
    fields.end()
    try:
        to = ResetTo(where)
    except ValueError:
        raise bad_parameter("to", "it is earliest, latest, time or offset") from None
    if (number is not None) != (to in _WITH_NUMBER):
        raise bad_parameter("number", "it goes with time and offset, and they with it")
    await asked.admin.describe_group(name)
    plan = await asked.admin.plan_reset(name, topic, to, number or 0)
    kept = asked.logged_in.plans.keep(topic, plan, asked.console.clock(), random_text)
    moves = [_move(each) for each in plan.changes]
    return {
        "plan": {
            "number": kept,
            "group": name,
            "topic": topic,
            "members_count": plan.members_count,
            "expires_ms": wall_ms() + round(1000 * PLAN_SECONDS),
            "again": sum(-each for each in moves if each < 0),
            "skipped": sum(each for each in moves if each > 0),
            "changes": plan.changes,
        }
    }


def _move(change: OffsetChange) -> int:
    """By how many messages a group goes on further in a queue; below 0: it gets some again."""
    old = change.min_offset if change.old_offset is None else change.old_offset
    return change.new_offset - old


def _queue(queue: GroupQueue) -> dict[str, Any]:
    return {**msgspec.structs.asdict(queue), "lag": queue.lag, "inflight": queue.inflight}


async def _dead_letters(asked: Asked, group: str) -> int | None:
    """Return how many there are; None if this user may not know."""
    try:
        queues = await asked.admin.topic_queues(dlq_topic(group))
    except RouteNotFoundError as error:
        if error.may_pass:
            raise
        return 0
    except BrokerError as error:
        if not is_refusal(error):
            raise
        return None
    return sum(each.message_count for each in queues)
