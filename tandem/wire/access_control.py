"""Who may do what to which topics and groups: users' rules, and the decision by them.

    entry    Allow or Deny | what it is about | which rights | from which addresses
    policy   a list of entries: Custom, or Default for what no Custom entry is about
    ACL      the policies of one user

    asked --> entries that are about it --+--> none: denied
                                          +--> the most exact one decides
                                                  literal name
                                                  longer prefix, shorter prefix
                                                  Topic:*, Group:*, Cluster:*
                                                  *
                                               Deny before Allow where two are as exact

So the order in which entries were written decides nothing. RocketMQ 5.3.3 takes the shorter prefix
first, and of two different entries whichever its sort meets first; docs/security.md has a table of
the differences.

Source: RocketMQ 5.3.3, AclInfo, PolicyEntry, Resource, AclAuthorizationHandler.
"""

from __future__ import annotations

import enum
import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tandem.wire.user_quota import UserQuota

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENTRIES_MAX: Final = 64
"""Of one user. RocketMQ has no bound."""

ACL_BYTES_MAX: Final = 16 * 1024
"""Of one user's policies, as JSON."""

ANY: Final = "*"


class Kind(enum.Enum):
    """What a name is the name of. Source: RocketMQ 5.3.3, ResourceType."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Right(enum.Enum):
    """What a user of a cluster may be allowed to do. Source: RocketMQ 5.3.3, Action of its ACL."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(enum.Enum):
    """What an entry says of what it is about. Source: Decision."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.Enum):
    """Whether a policy counts first, or for the rest. Source: PolicyType."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


_KINDS: Final = {kind.value.lower(): kind for kind in Kind}
_RIGHTS: Final = {right.value.lower(): right for right in Right}
_DECISIONS: Final = {decision.value.lower(): decision for decision in Decision}
_POLICY_TYPES: Final = {each.value.lower(): each for each in PolicyType}
ALL: Final = "All"
"""In place of all rights. Source: Action.ALL."""


class AclFault(enum.Enum):
    """What is wrong with an ACL. The values are RocketMQ's words. Source: AclValidator."""

    RESOURCE = "The resource is null."
    ACTIONS = "The actions is empty."
    ACTION_ANY = "The actions can not be Any."
    SOURCE_IP = "The source ip is invalid."
    DECISION = "The decision is null or illegal."
    POLICY_TYPE = "The policy type is illegal."
    TOO_LARGE = "The acl is too large."


class AclError(ValueError):
    """An ACL that cannot be.

    Attributes:
        fault: What is wrong with it.
    """

    def __init__(self, fault: AclFault, detail: str) -> None:
        self.fault = fault
        super().__init__(f"{fault.value} {detail}")


class PolicyEntryInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry, as it travels and is kept. Source: AclInfo.PolicyEntryInfo."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Entries that count together. Source: AclInfo.PolicyInfo."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one user may. `subject` is `User:NAME`. Source: AclInfo."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class UserInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A user. Source: UserInfo. Answers of nodes of ours have stars for a password."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None
    quota: UserQuota | None = None
    """The bounds the user has of its own. This and the next are unknown to RocketMQ."""
    refused: dict[str, int] | None = None
    """In answers: how many requests this node has refused since it runs, by the bound in words."""


SUBJECT_PREFIX: Final = "User:"


def subject_of(username: str) -> str:
    """Return how a user is called in an ACL."""
    return SUBJECT_PREFIX + username


def user_of(subject: str) -> str | None:
    """Return the name of the user of an ACL; None: it is of something else."""
    kind, colon, name = subject.partition(":")
    return name if colon and kind.lower() == "user" and name else None


class Exactness(enum.IntEnum):
    """How exactly an entry says what it is about."""

    ANY_OF_ANY = 0
    ANY_OF_KIND = 1
    PREFIX = 2
    LITERAL = 3


class ResourcePattern(NamedTuple):
    """What an entry is about.

    Attributes:
        kind: None for anything.
        exactness: How `name` is meant.
        name: The whole of a name, or its beginning; "" where it does not matter.
    """

    kind: Kind | None
    exactness: Exactness
    name: str

    def contains(self, kind: Kind, name: str) -> bool:
        """Whether it is about this one."""
        if self.kind is None:
            return True
        if self.kind is not kind:
            return False
        if self.exactness is Exactness.LITERAL:
            return name == self.name
        return name.startswith(self.name)

    def __str__(self) -> str:
        """Return it as RocketMQ's tools write it."""
        if self.kind is None:
            return ANY
        end = "" if self.exactness is Exactness.LITERAL else ANY
        return f"{self.kind.value}:{self.name}{end}"


def parse_resource(text: str) -> ResourcePattern:
    """Read `Topic:NAME`, `Topic:PREFIX*`, `Topic:*` or `*`. What follows the first `*` is ignored.

    Source: Resource.of.

    Raises:
        AclError: it is about nothing that a request can be about.
    """
    if text == ANY:
        return ResourcePattern(None, Exactness.ANY_OF_ANY, "")
    word, colon, name = text.partition(":")
    kind = _KINDS.get(word.strip().lower())
    if kind is None or not colon or not name.strip():
        raise AclError(
            AclFault.RESOURCE,
            f"{text!r} is none; write Topic:NAME, Topic:PREFIX*, Topic:*, the same with Group or"
            " Cluster, or *",
        )
    start, star, _ = name.strip().partition(ANY)
    if not star:
        return ResourcePattern(kind, Exactness.LITERAL, start)
    return ResourcePattern(kind, Exactness.PREFIX if start else Exactness.ANY_OF_KIND, start)


def parse_right(text: str) -> Right:
    """Read the name of one right, in any case.

    Raises:
        AclError: there is no such right.
    """
    right = _RIGHTS.get(text.strip().lower())
    if right is None:
        fault = AclFault.ACTION_ANY if text.strip().lower() == "any" else AclFault.ACTIONS
        names = ", ".join(each.value for each in Right)
        raise AclError(fault, f"{text!r} is none; there are {names} and {ALL}")
    return right


def parse_policy_type(text: str | None) -> PolicyType:
    """Read the type of a policy; without one it is Custom.

    Raises:
        AclError: there is no such type.
    """
    found = _POLICY_TYPES.get((text or PolicyType.CUSTOM.value).strip().lower())
    if found is None:
        raise AclError(AclFault.POLICY_TYPE, f"{text!r} is none; there are Custom and Default")
    return found


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Entry(NamedTuple):
    """An entry that was read.

    Attributes:
        resource: What it is about.
        rights: Those it is about.
        networks: Where a request has to come from; empty: from anywhere.
        allows: Whether it is Allow.
    """

    resource: ResourcePattern
    rights: frozenset[Right]
    networks: tuple[Network, ...]
    allows: bool

    @property
    def rank(self) -> tuple[int, int, bool]:
        """What decides between entries: the largest does."""
        return self.resource.exactness, len(self.resource.name), not self.allows

    def __str__(self) -> str:
        """Return it in words: `Allow Pub, Sub on Topic:Orders from 10.0.0.0/8`."""
        all_of_them = len(self.rights) == len(Right)
        rights = ALL if all_of_them else ", ".join(r.value for r in Right if r in self.rights)
        decision = Decision.ALLOW if self.allows else Decision.DENY
        words = f"{decision.value} {rights} on {self.resource}"
        if self.networks:
            words += " from " + ", ".join(str(each) for each in self.networks)
        return words


def parse_entry(info: PolicyEntryInfo) -> Entry:
    """Read an entry.

    Raises:
        AclError: a part of it is missing, or is none.
    """
    resource = parse_resource(info.resource or "")
    words = [word for word in info.actions or [] if word.strip()]
    if not words:
        raise AclError(AclFault.ACTIONS, f"what {resource} is about has to have one")
    has_all = any(word.strip().lower() == ALL.lower() for word in words)
    named = [word for word in words if word.strip().lower() != ALL.lower()]
    rights = frozenset(map(parse_right, named))
    decision = _DECISIONS.get((info.decision or "").strip().lower())
    if decision is None:
        raise AclError(AclFault.DECISION, f"{info.decision!r} is none; there are Allow and Deny")
    networks = tuple(_network(text) for text in info.source_ips or [])
    return Entry(
        resource, frozenset(Right) if has_all else rights, networks, decision is Decision.ALLOW
    )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise AclError(
            AclFault.SOURCE_IP,
            f"{text!r} is none; write an address, or a network as 10.0.0.0/8",
        ) from error


@lru_cache(maxsize=4_096)
def _is_in(ip: str, networks: tuple[Network, ...]) -> bool:
    address = ipaddress.ip_address(ip)
    return any(address in each for each in networks)


class Verdict(NamedTuple):
    """Whether somebody may do one thing to one resource.

    Attributes:
        is_allowed: Whether.
        entry: What decided it; None: no entry is about it.
    """

    is_allowed: bool
    entry: Entry | None


NOTHING_MATCHES: Final = Verdict(is_allowed=False, entry=None)


class _Index(NamedTuple):
    """The entries of one policy that are about one right to one kind of thing.

    Attributes:
        literal: Those of one name.
        prefixes: Those of names that begin with a number of characters, by these characters; the
            longest first. The empty one begins any name.
    """

    literal: Mapping[str, tuple[Entry, ...]]
    prefixes: tuple[tuple[int, Mapping[str, tuple[Entry, ...]]], ...]

    def about(self, name: str) -> Iterator[Entry]:
        """Return the entries that are about a name, what decides first before the others."""
        yield from self.literal.get(name, ())
        for chars, entries in self.prefixes:
            yield from entries.get(name[:chars], ())


def _index(entries: Iterable[Entry], kind: Kind, right: Right) -> _Index:
    literal: dict[str, tuple[Entry, ...]] = {}
    prefixes: dict[int, dict[str, tuple[Entry, ...]]] = {}
    for entry in entries:
        resource = entry.resource
        if right not in entry.rights or resource.kind not in (None, kind):
            continue
        if resource.exactness is Exactness.LITERAL:
            found = literal
        else:
            found = prefixes.setdefault(len(resource.name), {})
        found[resource.name] = (*found.get(resource.name, ()), entry)
    return _Index(literal, tuple(sorted(prefixes.items(), reverse=True)))


class Rules:
    """What one user may: the entries of both policies, what decides first before the others.

    A client may name thousands of topics in one heartbeat, and each is asked for. So entries are
    found by name, and not one after the other.

    Attributes:
        custom: Those that count first.
        default: Those for the rest.
    """

    def __init__(self, custom: tuple[Entry, ...] = (), default: tuple[Entry, ...] = ()) -> None:
        """Take the entries in the order in which they decide."""
        self.custom = custom
        self.default = default
        self._policies = tuple(
            {(kind, right): _index(entries, kind, right) for kind in Kind for right in Right}
            for entries in (custom, default)
            if entries
        )

    def decide(self, kind: Kind, name: str, right: Right, ip: str) -> Verdict:
        """Decide about one right to one thing, asked for from an address."""
        for policy in self._policies:
            for entry in policy[kind, right].about(name):
                if not entry.networks or _is_in(ip, entry.networks):
                    return Verdict(entry.allows, entry)
        return NOTHING_MATCHES

    def decide_any(self, kind: Kind, name: str, rights: Sequence[Right], ip: str) -> Verdict:
        """Decide about what takes one of some rights: allowed if any of them is."""
        verdicts = [self.decide(kind, name, right, ip) for right in rights]
        for verdict in verdicts:
            if verdict.is_allowed:
                return verdict
        decided = (verdict for verdict in verdicts if verdict.entry is not None)
        return next(decided, NOTHING_MATCHES)


def rules_of(policies: Iterable[PolicyInfo]) -> Rules:
    """Read the policies of a user.

    Raises:
        AclError: one of their entries cannot be, or they are too large.
    """
    policies = list(policies)
    entries: dict[PolicyType, list[Entry]] = {each: [] for each in PolicyType}
    for policy in policies:
        kept = entries[parse_policy_type(policy.policy_type)]
        kept += [parse_entry(each) for each in policy.entries or []]
    count = sum(map(len, entries.values()))
    size = len(msgspec.json.encode(policies))
    if count > ENTRIES_MAX or size > ACL_BYTES_MAX:
        raise AclError(
            AclFault.TOO_LARGE,
            f"{count} entries with {size} bytes; there may be {ENTRIES_MAX} and {ACL_BYTES_MAX}."
            " Use prefixes: Topic:shop-*",
        )
    for kept in entries.values():
        kept.sort(key=lambda entry: entry.rank, reverse=True)
    return Rules(tuple(entries[PolicyType.CUSTOM]), tuple(entries[PolicyType.DEFAULT]))


def with_policies(
    policies: Sequence[PolicyInfo], changed: Sequence[PolicyInfo]
) -> list[PolicyInfo]:
    """Return policies with other entries: an equal resource is replaced, the rest is added.

    Source: AuthorizationMetadataManagerImpl.updateAcl, Acl.updatePolicy.

    Raises:
        AclError: an entry cannot be.
    """
    kept: dict[PolicyType, dict[ResourcePattern, PolicyEntryInfo]] = {}
    for policy in (*policies, *changed):
        entries = kept.setdefault(parse_policy_type(policy.policy_type), {})
        for info in policy.entries or []:
            parse_entry(info)
            entries[parse_resource(info.resource or "")] = info
    return _as_infos(kept)


def without_resource(
    policies: Sequence[PolicyInfo], policy_type: PolicyType, resource: ResourcePattern | None
) -> list[PolicyInfo]:
    """Return policies without one resource, or without the whole policy of that type.

    Source: AuthorizationMetadataManagerImpl.deleteAcl.
    """
    kept: dict[PolicyType, dict[ResourcePattern, PolicyEntryInfo]] = {}
    for policy in policies:
        each_type = parse_policy_type(policy.policy_type)
        if each_type is policy_type and resource is None:
            continue
        entries = kept.setdefault(each_type, {})
        for info in policy.entries or []:
            found = parse_resource(info.resource or "")
            if each_type is not policy_type or found != resource:
                entries[found] = info
    return _as_infos(kept)


def _as_infos(
    kept: dict[PolicyType, dict[ResourcePattern, PolicyEntryInfo]],
) -> list[PolicyInfo]:
    return [
        PolicyInfo(each.value, list(kept[each].values())) for each in PolicyType if kept.get(each)
    ]
