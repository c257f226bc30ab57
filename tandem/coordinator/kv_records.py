"""What a store of keys and leases is asked, answers and remembers: its vocabulary, as etcd has it.

Source of the words: etcd API v3, rpc.proto and kv.proto.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec


class KeyValueError(Exception):
    """A request that cannot be done; nothing was changed. The words are those of etcd."""


class LeaseNotFoundError(KeyValueError):
    """There is no such lease: it expired, was revoked, or never was."""

    def __init__(self) -> None:
        super().__init__("etcdserver: requested lease not found")


class LeaseExistsError(KeyValueError):
    """A lease is asked for with the id of another."""

    def __init__(self) -> None:
        super().__init__("etcdserver: lease already exists")


class InvalidArgumentError(KeyValueError):
    """The request makes no sense; asking again does not help."""


class RevisionGapError(KeyValueError):
    """A change does not follow the `last` one: its `revision` is another than the next."""

    def __init__(self, revision: int, last: int) -> None:
        super().__init__(f"revision {revision} does not follow {last}")
        self.revision = revision
        self.last = last


class CompactedError(KeyValueError):
    """The history does not reach back so far; read, then watch from there.

    Attributes:
        compact_revision: The first revision that is still known.
    """

    def __init__(self, compact_revision: int) -> None:
        self.compact_revision = compact_revision
        super().__init__("etcdserver: mvcc: required revision has been compacted")


class Target(enum.Enum):
    """What of a key a condition looks at."""

    VERSION = "VERSION"
    CREATE = "CREATE"
    MOD = "MOD"
    VALUE = "VALUE"
    LEASE = "LEASE"


class Relation(enum.Enum):
    """How it must compare."""

    EQUAL = "EQUAL"
    NOT_EQUAL = "NOT_EQUAL"
    GREATER = "GREATER"
    LESS = "LESS"


class Item(msgspec.Struct, frozen=True):
    """A key as it is. `version` counts its writes since it was created."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease_id: int = 0


class Condition(msgspec.Struct, frozen=True):
    """`target` of the key has this `relation` to `value`. A missing key is all zeros, no value."""

    key: bytes
    target: Target
    relation: Relation
    value: int | bytes


class PutOperation(msgspec.Struct, frozen=True, tag="put"):
    """Write a key; `lease_id` 0 detaches it from its lease."""

    key: bytes
    value: bytes
    lease_id: int = 0


class DeleteOperation(msgspec.Struct, frozen=True, tag="delete"):
    """Delete one key, or all from `key` to before `range_end`."""

    key: bytes
    range_end: bytes = b""


class RangeOperation(msgspec.Struct, frozen=True, tag="range"):
    """Read one key, or all from `key` to before `range_end`."""

    key: bytes
    range_end: bytes = b""


Operation: TypeAlias = PutOperation | DeleteOperation | RangeOperation


class LeaseTerms(msgspec.Struct, frozen=True):
    """A lease without its clock."""

    lease_id: int
    ttl_seconds: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one request did, all or nothing."""

    revision: int
    """Of the keys, afterwards; the one before if no key changed."""
    puts: tuple[Item, ...] = ()
    deleted: tuple[bytes, ...] = ()
    granted: LeaseTerms | None = None
    ended: tuple[int, ...] = ()
    """Leases that are no more; their keys are among `deleted`."""


class Outcome(msgspec.Struct, frozen=True):
    """Of a transaction: which branch was done, at which revision, and an answer per operation."""

    succeeded: bool
    revision: int
    answers: tuple[Answer, ...]


class Put(msgspec.Struct, frozen=True):
    """The answer to a put."""


class Deleted(msgspec.Struct, frozen=True):
    """The answer to a delete."""

    count: int


class Found(msgspec.Struct, frozen=True):
    """The answer to a range, in the order of the keys."""

    items: tuple[Item, ...]


Answer: TypeAlias = Put | Deleted | Found


class KeyEvent(msgspec.Struct, frozen=True):
    """One key was changed: as it is now, or deleted."""

    key: bytes
    item: Item | None
    revision: int


IMAGE_FORMAT: Final = 1
"""Of what this version writes, and the highest that it reads."""


class StoreImage(msgspec.Struct, frozen=True):
    """Everything but the history and the clocks of the leases."""

    revision: int
    items: tuple[Item, ...]
    leases: tuple[LeaseTerms, ...]
    format: int = IMAGE_FORMAT
    """Of a journal that begins with it. Versions from before there was a number ignore it."""


def prefix_end(prefix: bytes) -> bytes:
    """The `range_end` for all keys that begin with `prefix`: a zero byte, "all", if there is none.

    Source: etcd, clientv3 GetPrefixRangeEnd.
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"
