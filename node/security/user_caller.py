"""A user as the caller of a request: what they may is asked of their rules.

What a name is the name of, for the rules:

    %RETRY%GROUP, %DLQ%GROUP       the group: Sub for who sends or reads, else the same right
    RMQ_SYS_TRACE_TOPIC            Pub: any user, for all clients that trace send there
    another topic of the system    the cluster: Get for who reads, Update for the rest
    anything else                  itself
"""

from __future__ import annotations

from typing import Final, NamedTuple

from node.errors import RequestError
from node.remoting.caller import ANYBODY, Caller
from node.remoting.user_share import UserShare
from node.security.access import Standing
from node.security.users import User, Users
from tandem.wire.access_control import Kind, Right
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY
from tandem.wire.system_topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    TRACE_TOPIC,
    is_system_topic,
)

_GROUP_PREFIXES: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
_OF_MESSAGES: Final = frozenset({Right.PUB, Right.SUB})
_READING: Final = frozenset({Right.SUB, Right.GET, Right.LIST})


class Asked(NamedTuple):
    """What rules are asked about: one of these rights to this thing is enough."""

    kind: Kind
    name: str
    rights: tuple[Right, ...]

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


class Names:
    """What names of a cluster are the names of."""

    def __init__(self, cluster: str, own: frozenset[str]) -> None:
        """Take the cluster's name, and those of topics that brokers keep for themselves."""
        self.cluster = cluster
        self._own = own

    def is_of_the_system(self, topic: str) -> bool:
        """Whether brokers keep a topic for themselves."""
        return is_system_topic(topic) or topic in self._own

    def asked(self, kind: Kind, name: str, rights: tuple[Right, ...]) -> Asked | None:
        """Return what the rules are asked about; None: everybody may."""
        if kind is Kind.CLUSTER:
            return Asked(kind, self.cluster, rights)
        if kind is Kind.GROUP:
            return Asked(kind, name, rights)
        if name.startswith(_GROUP_PREFIXES):
            group = name[name.index("%", 1) + 1 :]
            of_group = [Right.SUB if right in _OF_MESSAGES else right for right in rights]
            return Asked(Kind.GROUP, group, tuple(dict.fromkeys(of_group)))
        if not self.is_of_the_system(name):
            return Asked(kind, name, rights)
        if name == TRACE_TOPIC and Right.PUB in rights:
            return None
        needed = Right.GET if _READING.issuperset(rights) else Right.UPDATE
        return Asked(Kind.CLUSTER, self.cluster, (needed,))


class UserCaller(Caller):
    """A user whose signature was good, at one address.

    Attributes:
        user: As they were then.
    """

    def __init__(
        self,
        user: User,
        users: Users,
        names: Names,
        ip: str,
        *,
        asks: bool,
        share: UserShare | None = None,
    ) -> None:
        """Take who it is; without `asks` all users may do everything."""
        self.share = share
        self.name = user.stored.name
        super().__init__(f"user {self.name}")
        self.user = user
        self._users = users
        self._names = names
        self._ip = ip
        self._asks = asks

    @property
    def is_current(self) -> bool:
        """See `Caller`."""
        return self._users.find(self.name) is self.user

    @property
    def is_known(self) -> bool:
        """See `Caller`. Another secret is another user."""
        user = self._users.find(self.name)
        return (
            user is not None and user.is_enabled and user.stored.sealed == self.user.stored.sealed
        )

    def check(self, kind: Kind, name: str, *rights: Right) -> None:
        """See `Caller`. Asks what the rules are now."""
        user = self._users.find(self.name)
        if user is None or not self.is_known:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"User:{self.name} is not known any more, or disabled."
            )
        if user.is_super or not self._asks:
            return
        asked = self._names.asked(kind, name, rights)
        if asked is None:
            return
        verdict = user.verdict(*asked, self._ip)
        if verdict.is_allowed:
            return
        reason = "no matched policies" if verdict.entry is None else "the decision is deny"
        needed = " or ".join(right.value for right in asked.rights)
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"User:{self.name} has no permission to access {asked} from {self._ip}, {reason}."
            f" It takes {needed}; `tandem acl check {self.name} {asked.rights[0].value} {asked}`"
            " says what decides",
        )


CALLERS: Final = {
    Standing.STRANGER: ANYBODY,
    Standing.ADMITTED: Caller("an admitted broker"),
    Standing.OPERATOR: Caller(OPERATOR_ACCESS_KEY),
    Standing.NODE: Caller("a node, or who knows the secret"),
}
"""Who is no user, by their standing."""
