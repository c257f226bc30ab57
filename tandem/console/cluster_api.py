"""/api/v1/cluster, and what /api/v1/events sends."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Final

from tandem.console.accounts import Account
from tandem.console.asking import Asked, Console
from tandem.console.errors import APIError, too_many
from tandem.console.feed import Snapshot, event
from tandem.console.sessions import Session

LISTENERS_MAX: Final = 32
LISTENERS_OF_ONE_MAX: Final = 4
RETRY_MS: Final = 2_000

BEGIN: Final = b"retry: %d\n\n" % RETRY_MS


async def cluster(asked: Asked) -> Snapshot:
    """GET /api/v1/cluster."""
    asked.query().end()
    seen = await asked.account.cluster.fresh()
    if isinstance(seen, APIError):
        raise seen
    return seen


@contextmanager
def listening(console: Console, session: Session[Account]) -> Iterator[None]:
    """Be one of the listeners.

    Raises:
        APIError: there are too many.
    """
    is_full = console.listeners_count >= LISTENERS_MAX
    if is_full or session.listeners_count >= LISTENERS_OF_ONE_MAX:
        raise too_many("too_many_listeners", "too many pages listen already", 5_000)
    console.listeners_count += 1
    session.listeners_count += 1
    try:
        yield
    finally:
        console.listeners_count -= 1
        session.listeners_count -= 1


async def events(
    console: Console, session: Session[Account], last_event_id: str
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream, until the session is over."""
    account = session.account
    life, _, number_text = last_event_id.rpartition("-")
    is_ours = life == account.life and number_text.isdecimal() and len(number_text) < 16
    number = int(number_text) if is_ours else 0
    yield BEGIN
    while console.sessions.is_live(session):
        seen, number = await account.cluster.newer_than(number)
        if not console.sessions.is_live(session):
            break
        if isinstance(seen, APIError):
            yield event("trouble", seen.document())
        else:
            yield event("cluster", seen, f"{account.life}-{number}")
    yield event("over", {"reason": "no_session"})
