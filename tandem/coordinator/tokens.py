"""Access to the embedded coordinator: clients that know its password, by tokens, as in etcd.

A client gives user and password once (`/v3/auth/authenticate`) and gets a token, which it sends
with every request. A token is forgotten when it was not used for five minutes, or when there are
too many; the client then asks for another.

Source: etcd 3.4, auth/simple_token.go; api/v3rpc/rpctypes/error.go.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from tandem.coordinator.kv_records import KeyValueError

if TYPE_CHECKING:
    from collections.abc import Callable

USER: Final = "tandem"

TOKENS_MAX: Final = 1_024
"""Far more than a local cluster has processes. Beyond it the one that was not used longest goes."""

IDLE_SECONDS_MAX: Final = 300.0
"""Source: etcd, simpleTokenTTLDefault."""


class AuthenticationError(KeyValueError):
    """User and password are not right; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "etcdserver: authentication failed, invalid user ID or password"
            " (the coordinator was started with another secret)"
        )


class NoTokenError(KeyValueError):
    """A request came without a token."""

    def __init__(self) -> None:
        super().__init__("etcdserver: user name is empty")


class TokenNotKnownError(KeyValueError):
    """The token of a request is not, or not any more, one of ours."""

    def __init__(self) -> None:
        super().__init__("etcdserver: invalid auth token")


class Tokens:
    """The tokens of one life of a coordinator. `new_token` returns what nobody can guess."""

    def __init__(self, password: str, new_token: Callable[[], str]) -> None:
        self._password = password
        self._new_token = new_token
        self._last_used: dict[bytes, float] = {}
        """By digest of the token, oldest first: how long a look-up takes says nothing of tokens."""

    def authenticate(self, user: str, password: str, now: float) -> str:
        """Return a token for a client that knows the password.

        Raises:
            AuthenticationError: It is wrong.
        """
        if not hmac.compare_digest(f"{user} {password}".encode(), self._right.encode()):
            raise AuthenticationError
        token = self._new_token()
        self._last_used[_digest(token)] = now
        while len(self._last_used) > TOKENS_MAX:
            del self._last_used[next(iter(self._last_used))]
        return token

    def check(self, token: str, now: float) -> None:
        """Take note that a token was used.

        Raises:
            NoTokenError: There is none.
            TokenNotKnownError: It is not good.
        """
        if not token:
            raise NoTokenError
        digest = _digest(token)
        last_used = self._last_used.pop(digest, None)
        if last_used is None or now - last_used > IDLE_SECONDS_MAX:
            raise TokenNotKnownError
        self._last_used[digest] = now

    @property
    def _right(self) -> str:
        return f"{USER} {self._password}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
