"""Requests and replies of etcd's v3 gateway, as far as a fenced group needs them.

JSON over HTTP: keys and values in base64, 64-bit integers as strings, fields that are zero left
out. Replies that are streams (keep-alive, watch) come as lines, each wrapped in `result`, or in
`error` if the stream ends; the HTTP status of those is 200 whatever happens.

Source: etcd 3.4, rpc.proto, api/v3rpc/rpctypes/error.go; grpc-gateway 1.9, runtime/errors.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from tandem.coordinator.interface import (
    Compare,
    CoordinatorError,
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    Delete,
    Event,
    KeyValue,
    Lease,
    LeaseLostError,
    NoAnswer,
    Put,
    RefusalCause,
    Snapshot,
    TransactionResult,
)
from tandem.coordinator.kv_records import prefix_end
from tandem.wire.untrusted import UnreadableError, decode_json, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

Reply = TypeVar("Reply")

GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
RANGE: Final = "/v3/kv/range"
TRANSACTION: Final = "/v3/kv/txn"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"

NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
UNANSWERED: Final = frozenset({1, 2, 4, 10, 13, 14, 15})
"""gRPC codes after which the request may have been done, or be done yet: CANCELLED, UNKNOWN,
DEADLINE_EXCEEDED, ABORTED, INTERNAL, UNAVAILABLE, DATA_LOSS. Source: gRPC, statuscodes.md."""

_LEASE_NOT_FOUND: Final = "requested lease not found"
_TOO_MANY: Final = "too many requests"
_TOKEN_TROUBLES: Final = frozenset({RefusalCause.TOKEN, RefusalCause.USER_NEEDED})
_CAUSES: Final = {
    "started with another secret": RefusalCause.OTHER_SECRET,
    "authentication failed": RefusalCause.PASSWORD,
    "authentication is not enabled": RefusalCause.NO_USERS,
    "user name is empty": RefusalCause.USER_NEEDED,
    "permission denied": RefusalCause.PERMISSION,
    "database space exceeded": RefusalCause.SPACE,
    "HTTP status 404": RefusalCause.NO_GATEWAY,
    "invalid auth token": RefusalCause.TOKEN,
    "revision of auth store is old": RefusalCause.TOKEN,
}
"""By a part of etcd's words. Source: api/v3rpc/rpctypes/error.go."""
_REMEDIES: Final = {
    RefusalCause.OTHER_SECRET: "give all of this cluster the same secret file",
    RefusalCause.PASSWORD: "correct the user and the password of the coordinator",
    RefusalCause.NO_USERS: "take the user out of the coordinator's settings",
    RefusalCause.USER_NEEDED: "it wants a user: set user and password_file of the coordinator",
    RefusalCause.PERMISSION: "grant its user readwrite on the prefix /tandem/",
    RefusalCause.SPACE: "compact and defragment it, then disarm its alarm",
    RefusalCause.NO_GATEWAY: "give the client ports of an etcd from 3.4 on, with its gRPC gateway",
}


class InvalidTokenError(CoordinatorRefusedError):
    """The token of an earlier authentication is not good any more; nothing was done."""


# --- requests ----------------------------------------------------------------------------------


def grant_request(ttl_seconds: int) -> bytes:
    """Ask for a lease."""
    return msgspec.json.encode({"TTL": str(ttl_seconds)})


def lease_request(lease_id: int) -> bytes:
    """Name a lease: to keep it alive or to revoke it."""
    return msgspec.json.encode({"ID": str(lease_id)})


def range_request(prefix: str) -> bytes:
    """Ask for all keys under a prefix, from a quorum."""
    return msgspec.json.encode(_range(prefix))


def transaction_request(compares: Sequence[Compare], operations: Sequence[Put | Delete]) -> bytes:
    """Ask for all operations if all compares hold."""
    return msgspec.json.encode(
        {
            "compare": [
                {
                    "key": compare.key.encode(),
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": str(compare.mod_revision),
                }
                for compare in compares
            ],
            "success": [_operation(operation) for operation in operations],
        }
    )


def watch_request(prefix: str, start_revision: int) -> bytes:
    """Ask for all changes under a prefix."""
    return msgspec.json.encode(
        {"create_request": _range(prefix) | {"start_revision": str(start_revision)}}
    )


def authenticate_request(user: str, password: str) -> bytes:
    """Ask for a token."""
    return msgspec.json.encode({"name": user, "password": password})


def _range(prefix: str) -> dict[str, Any]:
    key = prefix.encode()
    return {"key": key or b"\0", "range_end": prefix_end(key)}


def _operation(operation: Put | Delete) -> dict[str, Any]:
    match operation:
        case Put(key, value, lease_id):
            put = {"key": key.encode(), "value": value, "lease": str(lease_id)}
            return {"request_put": put}
        case Delete(key):
            return {"request_delete_range": {"key": key.encode()}}


# --- replies -----------------------------------------------------------------------------------


class _Header(msgspec.Struct):
    revision: int = 0


class _Granted(msgspec.Struct):
    lease_id: int = msgspec.field(name="ID")
    ttl_seconds: int = msgspec.field(name="TTL")


class _KeptAlive(msgspec.Struct):
    ttl_seconds: int = msgspec.field(name="TTL", default=0)


class _KeptAliveLine(msgspec.Struct):
    result: _KeptAlive


class _KeyValue(msgspec.Struct):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class _Ranged(msgspec.Struct):
    header: _Header
    kvs: list[_KeyValue] = []


class _Transacted(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _Event(msgspec.Struct):
    kv: _KeyValue
    type: str = "PUT"


class _Watched(msgspec.Struct):
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[_Event] = []


class _WatchedLine(msgspec.Struct):
    result: _Watched


class _Token(msgspec.Struct):
    token: str


class _Trouble(msgspec.Struct):
    code: int = 0
    grpc_code: int = 0
    message: str = ""


class _TroubleLine(msgspec.Struct):
    error: _Trouble | str


def decode_grant(body: bytes) -> Lease:
    """Read the reply to `grant_request`.

    Raises:
        CoordinatorUnavailableError: It is not one, so nobody knows what was done. So do all others.
    """
    granted = _decode(body, _Granted)
    return Lease(granted.lease_id, granted.ttl_seconds)


def decode_keep_alive(body: bytes) -> int:
    """Read the reply to a keep-alive: the time to live in seconds.

    Raises:
        LeaseLostError: There is no such lease; the reply says so by leaving the time out.
        CoordinatorError: The stream ended with an error.
    """
    raise_stream_error(body)
    ttl_seconds = _decode(body, _KeptAliveLine).result.ttl_seconds
    if ttl_seconds <= 0:
        raise LeaseLostError("the lease has expired or was revoked")
    return ttl_seconds


def decode_range(body: bytes) -> Snapshot:
    """Read the reply to `range_request`."""
    ranged = _decode(body, _Ranged)
    values = [_key_value(kv) for kv in ranged.kvs]
    return Snapshot(ranged.header.revision, {value.key: value for value in values})


def decode_transaction(body: bytes) -> TransactionResult:
    """Read the reply to `transaction_request`."""
    done = _decode(body, _Transacted)
    return TransactionResult(succeeded=done.succeeded, revision=done.header.revision)


def decode_token(body: bytes) -> str:
    """Read the reply to `authenticate_request`."""
    return _decode(body, _Token).token


def decode_watch(line: bytes) -> tuple[Event, ...]:
    """Read one line of a watch; that it was created is no event.

    Raises:
        CoordinatorUnavailableError: The watch is over: its past was compacted away, or it says why.
        InvalidTokenError: It was not begun.
        CoordinatorError: The stream ended with an error.
    """
    raise_stream_error(line)
    watched = _decode(line, _WatchedLine).result
    if watched.compact_revision:
        raise CoordinatorUnavailableError(
            f"the watch asked for changes before revision {watched.compact_revision}, and those"
            " are compacted: read, then watch from there",
            NoAnswer.COMPACTED,
        )
    if watched.canceled:
        # The code of the error is in the words: "rpc error: code = Unauthenticated desc = ..."
        words = watched.cancel_reason.rpartition(" desc = ")[2].removeprefix("etcdserver: ")
        cause = _cause_of(words)
        if cause in _TOKEN_TROUBLES:
            raise InvalidTokenError(f"the coordinator refused: {words}", cause)
        text = f"the watch was cancelled: {words}"
        raise CoordinatorUnavailableError(text, NoAnswer.ENDED)
    return tuple(_event(event) for event in watched.events)


def _event(event: _Event) -> Event:
    value = None if event.type == "DELETE" else _key_value(event.kv)
    return Event(_text(event.kv.key), value, event.kv.mod_revision)


def _key_value(kv: _KeyValue) -> KeyValue:
    return KeyValue(
        key=_text(kv.key),
        value=kv.value,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        lease_id=kv.lease,
    )


def _text(key: bytes) -> str:
    # Somebody else's key under our prefix may be anything; it must not look like one of ours.
    return key.decode(errors="backslashreplace")


# --- errors ------------------------------------------------------------------------------------


def raise_stream_error(line: bytes) -> None:
    """Raise what a line of a stream says, if it says that the stream failed."""
    try:
        trouble = decode_json(line, _TroubleLine).error
    except UnreadableError:
        return
    if isinstance(trouble, str):
        raise _error(2, trouble)
    raise _error(trouble.grpc_code or trouble.code, trouble.message)


def raise_error(status: int, body: bytes) -> NoReturn:
    """Raise what a reply with an HTTP status other than 200 means.

    Raises:
        CoordinatorError: Always: the one that says whether anything can have been done.
    """
    try:
        trouble = decode_json(body, _Trouble)
    except UnreadableError:
        words = " ".join(body[:200].decode(errors="backslashreplace").split())
        trouble = _Trouble(message=f"HTTP status {status}: {words}")
    if status >= 500 and not trouble.code:
        raise CoordinatorUnavailableError(trouble.message)
    raise _error(trouble.code, trouble.message)


def _error(code: int, message: str) -> CoordinatorError:
    words = message.removeprefix("etcdserver: ")
    if code == NOT_FOUND and _LEASE_NOT_FOUND in words:
        return LeaseLostError(words)
    if code in UNANSWERED or (code == RESOURCE_EXHAUSTED and _TOO_MANY in words):
        return CoordinatorUnavailableError(words)
    cause = _cause_of(words)
    remedy = _REMEDIES.get(cause, "")
    text = f"the coordinator refused: {words}" + (f"; {remedy}" if remedy else "")
    if cause in _TOKEN_TROUBLES:
        return InvalidTokenError(text, cause)
    return CoordinatorRefusedError(text, cause)


def _cause_of(words: str) -> RefusalCause:
    return next((cause for part, cause in _CAUSES.items() if part in words), RefusalCause.OTHER)


def _decode(body: bytes, kind: type[Reply]) -> Reply:
    try:
        return decode_json(body, kind, strict=False)
    except UnreadableError as error:
        raise CoordinatorUnavailableError(
            f"the coordinator answered {shown(body)}, which etcd would not: {error}",
            NoAnswer.UNREADABLE,
        ) from error
