"""One request with who asks: what each route of the API gets."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from tandem.client import Admin
from tandem.client.errors import ClientError
from tandem.console.accounts import Account, Accounts
from tandem.console.errors import OK, APIError, no_session
from tandem.console.incoming import Incoming
from tandem.console.parameters import Parameters
from tandem.console.sessions import LoginToken, Session, Sessions
from tandem.plain_text import one_line

RANDOM_BYTES: Final = 32


def random_text() -> str:
    """Return 256 random bits."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def wall_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


class Reply(msgspec.Struct, frozen=True):
    """What is sent: a document that is JSON, and cookies."""

    document: Any
    status: HTTPStatus = OK
    cookies: tuple[str, ...] = ()


class Console:
    """All that requests share.

    Attributes:
        token: What one logs in with where the cluster is open; None where it has users.
        reports: Where reports of drills are.
        cookie: The name of the cookie.
        listeners_count: How many event streams there are.
        resending: Dead letters that are being sent again at this moment.
        logged_in: Called after a login, with the client's address.
        note: Called with a line for the operator: who has changed what.
    """

    def __init__(
        self,
        accounts: Accounts,
        *,
        reports: Path,
        cookie: str,
        is_secure: bool,
        clock: Callable[[], float] = trio.current_time,
        logged_in: Callable[[str], None] = lambda _client: None,
        note: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self.accounts = accounts
        self.around = accounts.around
        self.reports = reports
        self.cookie = cookie
        self.is_secure = is_secure
        self.clock = clock
        self.logged_in = logged_in
        self.note = note
        self.sessions: Sessions[Account] = Sessions(clock, random_text, accounts.leave)
        self.token = None if self.around.target.has_users else LoginToken(random_text)
        self.listeners_count = 0
        self.resending: set[tuple[str, str]] = set()


class Asked(msgspec.Struct, frozen=True):
    """One request. `session` is None if nobody is logged in."""

    console: Console
    incoming: Incoming
    session: Session[Account] | None

    @property
    def logged_in(self) -> Session[Account]:
        """The session.

        Raises:
            APIError: there is none.
        """
        if self.session is None:
            raise no_session()
        return self.session

    @property
    def account(self) -> Account:
        """Whose keys are used."""
        return self.logged_in.account

    @property
    def admin(self) -> Admin:
        """Who asks the nodes."""
        return self.account.admin

    @property
    def user(self) -> str:
        """Who asks; empty where the cluster is open."""
        return self.logged_in.user

    @contextmanager
    def noting(self, order: str) -> Iterator[None]:
        """Say to the operator what is ordered here, and what came of it, also if nobody knows."""
        outcome = "it is not known whether that was done"
        try:
            yield
            outcome = "done"
        except ClientError as error:
            outcome = str(error)
            raise
        finally:
            who = f"user {self.user}" if self.user else "somebody"
            self.console.note(one_line(f"{who} at {self.incoming.client}: {order}: {outcome}"))

    def query(self) -> Parameters:
        """Return the parameters of a GET."""
        return Parameters(self.incoming.query)

    def fields(self) -> Parameters:
        """Return the fields of the object in the body.

        Raises:
            APIError: there is none, or there are parameters beside it.
        """
        self.query().end()
        return Parameters(self.incoming.json(), is_json=True)


def asked_of(console: Console, incoming: Incoming) -> Asked:
    """Return a request with the session of its cookie."""
    secret = incoming.cookies.get(console.cookie, "")
    return Asked(console, incoming, console.sessions.find(secret) if secret else None)


def not_found(code: str, words: str) -> APIError:
    """Return the error of what nobody knows."""
    return APIError(HTTPStatus.NOT_FOUND, code, words, "look whether the name is right")
