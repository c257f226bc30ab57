"""Who is logged in, how one logs in, and how often one may try. Pure: time and chance are given.

A session is known by a random number that only its browser has; here is its hash alone. It ends
when it is idle for too long, by a log-out, or when there are too many and it has been idle longest
of those of the user who has most.
"""

import hashlib
import hmac
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tandem.console.errors import too_many
from tandem.console.plans import Plans

IDLE_SECONDS: Final = 1800.0
SESSIONS_MAX: Final = 64
FAILURES_MAX: Final = 10
FAILURES_OF_ALL_MAX: Final = 100
FAILURE_SECONDS: Final = 60.0

AccountT = TypeVar("AccountT")


class Session(Generic[AccountT]):
    """One login. `user` is empty where the cluster is open."""

    def __init__(self, key: str, user: str, account: AccountT, now: float) -> None:
        self.key = key
        self.user = user
        self.account = account
        self.last_used = now
        self.is_over = False
        self.listeners_count = 0
        self.plans = Plans()


class Sessions(Generic[AccountT]):
    """All of them. `ended` is what to do with the account of a session that is over."""

    def __init__(
        self,
        clock: Callable[[], float],
        random_text: Callable[[], str],
        ended: Callable[[AccountT], None],
    ) -> None:
        self._clock = clock
        self._random_text = random_text
        self._ended = ended
        self._sessions: dict[str, Session[AccountT]] = {}
        self._failures: dict[str, deque[float]] = {}

    def open(self, user: str, account: AccountT) -> tuple[str, Session[AccountT]]:
        """Begin a session; return what its browser gets, too."""
        self.sweep()
        if len(self._sessions) >= SESSIONS_MAX:
            # Of whoever has most: nobody can end the sessions of others by logging in.
            counts = Counter(each.user for each in self._sessions.values())
            self.close(
                min(self._sessions.values(), key=lambda each: (-counts[each.user], each.last_used))
            )
        secret = self._random_text()
        session = Session(_key(secret), user, account, self._clock())
        self._sessions[session.key] = session
        return secret, session

    def find(self, secret: str) -> Session[AccountT] | None:
        """Return the session of a browser, which has been used now; None if there is none."""
        self.sweep()
        session = self._sessions.get(_key(secret))
        if session is not None:
            session.last_used = self._clock()
        return session

    def is_live(self, session: Session[AccountT]) -> bool:
        """Whether a session goes on. Asking is no use of it."""
        self.sweep()
        return not session.is_over

    def close(self, session: Session[AccountT]) -> None:
        """End a session."""
        if self._sessions.pop(session.key, None) is not None:
            session.is_over = True
            self._ended(session.account)

    def sweep(self) -> None:
        """End those that have been idle for too long."""
        oldest = self._clock() - IDLE_SECONDS
        for session in [each for each in self._sessions.values() if each.last_used < oldest]:
            self.close(session)

    def try_login(self, client: str) -> None:
        """Count a login as failed, until `succeeded` says otherwise.

        Raises:
            APIError: there were too many from this address, or from all of them.
        """
        now = self._clock()
        for address, times in list(self._failures.items()):
            while times and times[0] <= now - FAILURE_SECONDS:
                times.popleft()
            if not times:
                del self._failures[address]
        own = self._failures.get(client, deque())
        of_all = sum(map(len, self._failures.values()))
        if len(own) >= FAILURES_MAX or of_all >= FAILURES_OF_ALL_MAX:
            first = own[0] if own else min(times[0] for times in self._failures.values())
            left_ms = max(1, round(1000 * (first + FAILURE_SECONDS - now)))
            raise too_many("too_many_logins", "too many logins have failed", left_ms)
        self._failures.setdefault(client, deque()).append(now)

    def succeeded(self, client: str) -> None:
        """Take back the last count of `try_login`: it was no failure."""
        if times := self._failures.get(client):
            times.pop()


class LoginToken:
    """The token of an open cluster's console: good for one login, then there is another."""

    def __init__(self, random_text: Callable[[], str]) -> None:
        self._random_text = random_text
        self.text = random_text()

    def take(self, given: str) -> bool:
        """Whether it is the right one; it is used up then."""
        if not hmac.compare_digest(_key(given), _key(self.text)):
            return False
        self.text = self._random_text()
        return True


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
