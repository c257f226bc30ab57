"""/api/v1/dead-letters: looking at them, and sending one again, once."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tandem.client import Producer
from tandem.client.dead_letter import origin_id, origin_topic
from tandem.client.errors import MessageNotFoundError, RouteNotFoundError
from tandem.console.asking import Asked, not_found
from tandem.console.errors import APIError, too_many
from tandem.console.message_cursor import LIMIT_MAX, cursor_of, next_cursor
from tandem.console.message_json import listed
from tandem.views.resending import RESEND_GROUP, Resent, find_resent, send_again
from tandem.wire.system_topics import dlq_topic

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt

BUSY_MS: Final = 1_000


async def letters(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/dead-letters."""
    query = asked.query()
    group = query.text("group")
    limit = query.number("limit", 1, LIMIT_MAX, LIMIT_MAX)
    from_ms, skip = cursor_of(query) or (0, 0)
    query.end()
    topic = dlq_topic(group)
    answer: dict[str, Any] = {"group": group, "topic": topic}
    try:
        queues = await asked.admin.topic_queues(topic)
        page = await asked.admin.page_by_time(topic, from_ms=from_ms, skip=skip, count_max=limit)
    except RouteNotFoundError as error:
        if error.may_pass:
            raise
        await asked.admin.describe_group(group)  # which says so, if there is no such group
        return {**answer, "total": 0, "letters": [], "cursor": None}
    found = []
    for each in page.messages:
        letter = each.message
        found.append(
            {
                "message": listed(each),
                "origin_id": origin_id(letter),
                "origin_topic": origin_topic(letter),
                "resent": await find_resent(asked.admin, letter),
            }
        )
    total = sum(each.message_count for each in queues)
    cursor = next_cursor(page, from_ms, skip)
    return {**answer, "total": total, "letters": found, "cursor": cursor}


async def resend(asked: Asked) -> dict[str, Any]:
    """POST /api/v1/dead-letters/resend.

    Raises:
        APIError: `sent_before`, unless it is to be sent again; `no_letter`.
    """
    fields = asked.fields()
    group, message_id, again = fields.text("group"), fields.text("id"), fields.flag("again")
    fields.end()
    letter = await _letter(asked, group, message_id)
    topic = origin_topic(letter)
    if not topic:
        words = f"dead letter {message_id} does not say what its topic was"
        raise not_found("no_topic", words)
    sending = group, origin_id(letter)
    resending = asked.console.resending
    if sending in resending:
        raise too_many("busy", f"dead letter {message_id} is being sent at this moment", BUSY_MS)
    resending.add(sending)
    try:
        before = await find_resent(asked.admin, letter)
        if before is not None and not again:
            raise _sent_before(message_id, before)
        async with Producer(
            asked.account.access, group=RESEND_GROUP, open_stream=asked.console.around.open_stream
        ) as producer:
            with asked.noting(f"dead letter {message_id} of group {group} is sent again"):
                sent = await send_again(asked.admin, producer, letter, by=asked.user, again=again)
    finally:
        resending.discard(sending)
    return {
        "sent": {
            "letter_id": letter.offset_msg_id,
            "origin_id": origin_id(letter),
            "topic": topic,
            "message_id": sent.message_id,
            "copies": sent.copies,
        }
    }


async def _letter(asked: Asked, group: str, message_id: str) -> "MessageExt":
    topic = dlq_topic(group)
    unknown = not_found("no_letter", f"group {group} has no dead letter {message_id}")
    try:
        found = await asked.admin.message(message_id, topic)
    except MessageNotFoundError:
        raise unknown from None
    if found.topic != topic:
        raise unknown
    return found


def _sent_before(message_id: str, before: Resent) -> APIError:
    by = f", by {before.by}" if before.by else ""
    return APIError(
        HTTPStatus.CONFLICT,
        "sent_before",
        f"dead letter {message_id} was sent again already{by}",
        "look at what became of it; if it is to be sent once more, say so",
        resent=msgspec.structs.asdict(before),
    )
