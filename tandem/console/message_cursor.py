"""Where a list of messages in the order of time goes on: a time, and how many of it were seen.

Messages of one time are always in the same order, so their number is enough.
"""

from typing import Final

from tandem.client.admin_results import MessagePage
from tandem.console.parameters import NUMBER_MAX, Parameters

LIMIT_MAX: Final = 32
SKIP_MAX: Final = 10_000


def next_cursor(page: MessagePage, from_ms: int, skip: int) -> str | None:
    """Return where the next page goes on: at a time, past this many messages of that time."""
    if page.is_whole:
        return None
    times = [each.message.store_timestamp_ms for each in page.messages]
    if not times:
        return f"{from_ms}.{skip}"
    seen = times.count(times[-1]) + (skip if times[-1] == from_ms else 0)
    return f"{times[-1]}.{seen}"


def cursor_of(query: Parameters) -> tuple[int, int] | None:
    """Return time and number of a cursor, None if there is none.

    Raises:
        APIError: it is none of ours.
    """
    text = query.text("cursor", "")
    if not text:
        return None
    first, _, second = text.partition(".")
    parts = Parameters({"cursor": first, "of cursor": second})
    return (
        parts.number("cursor", 0, NUMBER_MAX),
        parts.number("of cursor", 0, SKIP_MAX),
    )
