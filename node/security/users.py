"""The users of a cluster as one node knows them: whose signature is good, and what they may.

    tables --replace--> Users --find--> User --+--> is_signed: is it they?
                                               +--> verdict: may they?

A `User` never changes. What changes about them makes another one, so what was found out about the
old one, and kept, dies with it.
"""

from __future__ import annotations

import binascii
import enum
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tandem.wire.access_control import AclError, Kind, PolicyInfo, Right, Rules, Verdict, rules_of
from tandem.wire.acl_signature import AclKey
from tandem.wire.call_signature import SignedCall
from tandem.wire.frame_seal import connection_key
from tandem.wire.sealed_secret import SealError, unseal
from tandem.wire.user_quota import OF_THE_FILE, UserQuota

_log = logging.getLogger(__name__)

USERS_MAX: Final = 4_096
"""Of a cluster."""

_VERDICTS_MAX: Final = 4_096
"""That are kept of one user; a client that asks for more names is asked anew."""


class UserType(enum.Enum):
    """What a user is asked. Source: RocketMQ 5.3.3, UserType."""

    SUPER = "Super"
    """Nothing: they may do everything that clients and operators may."""
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether a user is known. Source: UserStatus."""

    ENABLE = "enable"
    DISABLE = "disable"


class StoredUser(msgspec.Struct, frozen=True, rename="camel"):
    """One user, as tables have it. `sealed` is the secret, see `tandem.wire.sealed_secret`."""

    name: str
    sealed: str
    user_type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE


class User:
    """One user.

    Attributes:
        stored: What the tables say.
        policies: What they say of what the user may.
        is_super: Whether nothing is asked.
        quota: What they say of how much the user may take.
    """

    def __init__(
        self,
        stored: StoredUser,
        policies: Sequence[PolicyInfo],
        key: bytes,
        quota: UserQuota = OF_THE_FILE,
    ) -> None:
        """Take what the tables say; `key` opens sealed secrets."""
        self.stored = stored
        self.quota = quota
        self.policies = policies
        self.is_super = stored.user_type is UserType.SUPER
        self._sealing_key = key
        self._key: AclKey | None = None
        self._rules: Rules | None = None
        self._verdicts: dict[tuple[Kind, str, tuple[Right, ...], str], Verdict] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether the user may sign at all."""
        return self.stored.status is UserStatus.ENABLE

    @property
    def secret_mark(self) -> str:
        """What the secret is known by, see `node.security.seals.Signer`."""
        return self.stored.sealed

    def seal_key(self, challenge: str, target: str) -> bytes:
        """Return the key with which the user seals on one connection.

        Raises:
            SealError: the secret cannot be opened, so nobody can sign with it.
        """
        name = self.stored.name
        secret = unseal(self._sealing_key, name, self.stored.sealed)
        return connection_key(secret, name, challenge, target)

    def is_signed(self, fields: Mapping[str, str], body: bytes, *, is_binary: bool) -> bool:
        """Say whether a request has this user's signature.

        Raises:
            SealError: the secret cannot be opened, so nobody can sign with it.
        """
        return self._opened_key().is_signed(fields, body, is_binary=is_binary)

    def is_call_signed(self, call: SignedCall) -> bool:
        """Say whether a call of gRPC has this user's signature.

        Raises:
            SealError: the secret cannot be opened, so nobody can sign with it.
        """
        expected = self._opened_key().signature(call.content, b"")
        return hmac.compare_digest(expected, binascii.b2a_base64(call.signature, newline=False))

    def _opened_key(self) -> AclKey:
        if self._key is None:
            self._key = AclKey(unseal(self._sealing_key, self.stored.name, self.stored.sealed))
        return self._key

    @property
    def key(self) -> AclKey | None:
        """What the user signs with, once it has been looked at; None: not yet."""
        return self._key

    def verdict(self, kind: Kind, name: str, rights: tuple[Right, ...], ip: str) -> Verdict:
        """Say whether the user may do one of some things to a resource, from an address."""
        key = (kind, name, rights, ip)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if self._rules is None:
                self._rules = self._read_rules()
            verdict = self._rules.decide_any(kind, name, rights, ip)
            if len(self._verdicts) >= _VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def _read_rules(self) -> Rules:
        try:
            return rules_of(self.policies)
        except AclError as error:
            # Another version may have written it. What cannot be read allows nothing.
            _log.error("user %s may do nothing: %s", self.stored.name, error)
            return Rules()


class Users:
    """All users, by name.

    Attributes:
        count: How many there are.
    """

    def __init__(self, key: bytes) -> None:
        """Know nobody yet; `key` is the cluster's for Purpose.USERS."""
        self._key = key
        self._by_name: dict[str, User] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._by_name)

    def find(self, name: str) -> User | None:
        """Return the user of a name."""
        return self._by_name.get(name)

    def replace(
        self,
        users: Mapping[str, StoredUser],
        acls: Mapping[str, Sequence[PolicyInfo]],
        quotas: Mapping[str, UserQuota] = MappingProxyType({}),
    ) -> bool:
        """Know these and no others; return whether that is a change."""
        known: dict[str, User] = {}
        for name, stored in users.items():
            policies, quota = acls.get(name, ()), quotas.get(name, OF_THE_FILE)
            user = self._by_name.get(name)
            if (
                user is None
                or user.stored != stored
                or user.policies != policies
                or user.quota != quota
            ):
                user = User(stored, policies, self._key, quota)
            known[name] = user
        is_change = known != self._by_name
        self._by_name = known
        return is_change


def why_not_signed(
    user: User | None, fields: Mapping[str, str], body: bytes, *, is_binary: bool
) -> str | None:
    """Say why a signature is not good, for the node's log; None: it is."""
    return _why_not(user, lambda user: user.is_signed(fields, body, is_binary=is_binary))


def why_call_not_signed(user: User | None, call: SignedCall) -> str | None:
    """The same of a call of gRPC."""
    return _why_not(user, lambda user: user.is_call_signed(call))


def _why_not(user: User | None, is_signed: Callable[[User], bool]) -> str | None:
    if user is None:
        return "there is no such user"
    if not user.is_enabled:
        return "the user is disabled"
    try:
        if is_signed(user):
            return None
    except SealError as error:
        return f"{error}: give the user a secret again (tandem user alter)"
    return "the signature is wrong"
