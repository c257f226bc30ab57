"""The server's side of etcd's JSON gateway, over a `KeyValueStore`: a request in, a reply out.

No I/O, no clock: `now` comes in with each request. What etcd leaves out of a reply because it is
zero is left out here too, and errors have its words, codes and HTTP statuses, so that a client
cannot tell the two apart.

Source: etcd 3.4, rpc.proto, api/v3rpc/rpctypes/error.go; compared with replies of etcd 3.4.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec

from tandem.coordinator.etcd_v3 import (
    AUTHENTICATE,
    GRANT,
    KEEP_ALIVE,
    RANGE,
    REVOKE,
    TRANSACTION,
)
from tandem.coordinator.kv_records import (
    CompactedError,
    Condition,
    Deleted,
    DeleteOperation,
    Found,
    InvalidArgumentError,
    Item,
    KeyEvent,
    KeyValueError,
    LeaseExistsError,
    LeaseNotFoundError,
    Operation,
    PutOperation,
    RangeOperation,
    Relation,
    Target,
)
from tandem.coordinator.tokens import TokenNotKnownError
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tandem.coordinator.kv import KeyValueStore
    from tandem.coordinator.kv_records import Answer
    from tandem.coordinator.tokens import Tokens

Request = TypeVar("Request")

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Every number of this API. Source: etcd API v3, rpc.proto and kv.proto."""

VERSION: Final = "3.4.0"
"""Of the API that is served; the name below says that it is not etcd."""

SERVER: Final = "tandem-embedded"


STATUS: Final = "/v3/maintenance/status"

_HTTP_STATUSES: Final = {3: 400, 5: 404, 9: 412, 11: 400, 12: 501, 14: 503, 16: 401}
"""HTTP status of a gRPC code. Source: grpc-gateway 1.9, runtime/errors.go."""


class Reply(msgspec.Struct, frozen=True):
    """An HTTP status and a JSON body."""

    status: int
    body: bytes


class WatchOrder(msgspec.Struct, frozen=True):
    """What a watch wants to see; `start_revision` 0: from now on."""

    key: bytes
    range_end: bytes = b""
    start_revision: int = 0


class _GrantRequest(msgspec.Struct, rename={"ttl": "TTL", "id": "ID"}):
    ttl: Int64 = 0
    id: Int64 = 0


class _LeaseRequest(msgspec.Struct, rename={"id": "ID"}):
    id: Int64 = 0


class _RangeRequest(msgspec.Struct):
    key: bytes = b""
    range_end: bytes = b""


class _PutRequest(msgspec.Struct):
    key: bytes = b""
    value: bytes = b""
    lease: Int64 = 0


class _Compare(msgspec.Struct):
    key: bytes = b""
    target: Literal["VERSION", "CREATE", "MOD", "VALUE", "LEASE"] = "VERSION"
    result: Literal["EQUAL", "GREATER", "LESS", "NOT_EQUAL"] = "EQUAL"
    version: Int64 = 0
    create_revision: Int64 = 0
    mod_revision: Int64 = 0
    value: bytes = b""
    lease: Int64 = 0

    def condition(self) -> Condition:
        """The same in the words of the engine."""
        wanted: dict[str, int | bytes] = {
            "VERSION": self.version,
            "CREATE": self.create_revision,
            "MOD": self.mod_revision,
            "VALUE": self.value,
            "LEASE": self.lease,
        }
        return Condition(self.key, Target(self.target), Relation(self.result), wanted[self.target])


class _Operation(msgspec.Struct):
    request_put: _PutRequest | None = None
    request_delete_range: _RangeRequest | None = None
    request_range: _RangeRequest | None = None

    def operation(self) -> Operation:
        """The same in the words of the engine."""
        if (put := self.request_put) is not None:
            return PutOperation(put.key, put.value, put.lease)
        if (delete := self.request_delete_range) is not None:
            return DeleteOperation(delete.key, delete.range_end)
        if (read := self.request_range) is not None:
            return RangeOperation(read.key, read.range_end)
        raise InvalidArgumentError("an operation is none of put, delete and range")


class _TransactionRequest(msgspec.Struct):
    compare: list[_Compare] = []
    success: list[_Operation] = []
    failure: list[_Operation] = []


class _CompactionRequest(msgspec.Struct):
    revision: Int64 = 0


class _Create(msgspec.Struct):
    key: bytes = b""
    range_end: bytes = b""
    start_revision: Int64 = 0


class _WatchRequest(msgspec.Struct):
    create_request: _Create


class _Authenticate(msgspec.Struct):
    name: str = ""
    password: str = ""


class _Empty(msgspec.Struct):
    pass


class Gateway:
    """Answers the requests of etcd's API that a fenced group needs, and a few for people.

    `lease_id` returns a new random id; ids must not come back after a journal was lost, or one node
    would keep the lease of another alive.
    """

    def __init__(self, store: KeyValueStore, lease_id: Callable[[], int], tokens: Tokens) -> None:
        self.trouble = ""
        """Why nothing can be changed at the moment, in words. The server sets it."""
        self._tokens = tokens
        self._store = store
        self._lease_id = lease_id
        self._paths: dict[str, Callable[[bytes, float], dict[str, Any]]] = {
            GRANT: self._grant,
            KEEP_ALIVE: self._keep_alive,
            REVOKE: self._revoke,
            RANGE: self._range,
            "/v3/kv/put": self._put,
            "/v3/kv/deleterange": self._delete_range,
            TRANSACTION: self._transact,
            "/v3/kv/compaction": self._compact,
            STATUS: self._status,
            AUTHENTICATE: self._authenticate,
        }

    def answer(self, path: str, body: bytes, now: float) -> Reply:
        """Do one request, unless it is a watch. Whatever is wrong with it is answered."""
        handler = self._paths.get(path)
        if handler is None:
            return Reply(404, b"Not Found\n")
        try:
            return Reply(200, msgspec.json.encode(handler(body, now)))
        except KeyValueError as error:
            return error_reply(error)

    def version(self) -> bytes:
        """The body of `GET /version`."""
        return msgspec.json.encode({"etcdserver": VERSION, "etcdcluster": VERSION, "is": SERVER})

    def watch_order(self, body: bytes) -> WatchOrder:
        """Read the request of a watch.

        Raises:
            InvalidArgumentError: It is not one.
        """
        create = _decode(body, _WatchRequest).create_request
        if not create.key:
            raise InvalidArgumentError("etcdserver: key is not provided")
        start = create.start_revision or self._store.revision + 1
        return WatchOrder(create.key, create.range_end, start)

    def watch_line(self, order: WatchOrder, end_revision: int) -> bytes:
        """What has happened before `end_revision`; empty if nothing has.

        Raises:
            CompactedError: `cancelled_line` says it to the client.
        """
        events = self._store.events(order.start_revision, order.key, order.range_end, end_revision)
        if not events:
            return b""
        return self._line({"events": [_event(event) for event in events]})

    def created_line(self) -> bytes:
        """The first line of a watch."""
        return self._line({"created": True})

    def cancelled_line(self, error: CompactedError) -> bytes:
        """The last line of a watch that asked for too much."""
        revision = str(error.compact_revision)
        return self._line({"canceled": True, "compact_revision": revision})

    # --- requests ------------------------------------------------------------------------------

    def _grant(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _GrantRequest)
        terms = self._store.grant(request.id or self._lease_id(), request.ttl, now)
        return self._reply(ID=str(terms.lease_id), TTL=str(terms.ttl_seconds))

    def _keep_alive(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _LeaseRequest)
        try:
            ttl_seconds = self._store.keep_alive(request.id, now)
        except LeaseNotFoundError:
            # etcd leaves the zero out, and that is how one learns it.
            return {"result": self._reply(ID=str(request.id))}
        return {"result": self._reply(ID=str(request.id), TTL=str(ttl_seconds))}

    def _revoke(self, body: bytes, now: float) -> dict[str, Any]:
        self._store.revoke(_decode(body, _LeaseRequest).id, now)
        return self._reply()

    def _range(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _RangeRequest)
        return self._reply(**_found(self._store.range(request.key, request.range_end, now)))

    def _put(self, body: bytes, now: float) -> dict[str, Any]:
        put = _decode(body, _PutRequest)
        self._store.transact([], [PutOperation(put.key, put.value, put.lease)], [], now)
        return self._reply()

    def _delete_range(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _RangeRequest)
        operation = DeleteOperation(request.key, request.range_end)
        outcome = self._store.transact([], [operation], [], now)
        return self._reply(**_answer(outcome.answers[0])["response_delete_range"])

    def _transact(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _TransactionRequest)
        outcome = self._store.transact(
            [compare.condition() for compare in request.compare],
            [operation.operation() for operation in request.success],
            [operation.operation() for operation in request.failure],
            now,
        )
        reply = self._reply(succeeded=True) if outcome.succeeded else self._reply()
        if outcome.answers:
            reply["responses"] = [_answer(answer) for answer in outcome.answers]
        return reply

    def _compact(self, body: bytes, _now: float) -> dict[str, Any]:
        revision = _decode(body, _CompactionRequest).revision
        if revision > self._store.revision:
            raise InvalidArgumentError("etcdserver: mvcc: required revision is a future revision")
        self._store.compact(revision)
        return self._reply()

    def _status(self, body: bytes, _now: float) -> dict[str, Any]:
        _decode(body, _Empty)
        # Source of `errors`: etcd, StatusResponse; what etcd raises an alarm for is there.
        errors = {"errors": [self.trouble]} if self.trouble else {}
        return self._reply(version=VERSION, server=SERVER, **errors)

    def _authenticate(self, body: bytes, now: float) -> dict[str, Any]:
        request = _decode(body, _Authenticate)
        return self._reply(token=self._tokens.authenticate(request.name, request.password, now))

    def _reply(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the body of a reply
        return {"header": {"revision": str(self._store.revision), "raft_term": "1"}, **fields}

    def _line(self, fields: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"result": self._reply(**fields)}) + b"\n"


def error_reply(error: KeyValueError) -> Reply:
    """Say an error as etcd's gateway says it."""
    match error:
        case LeaseNotFoundError():
            code = 5
        case LeaseExistsError():
            code = 9
        case CompactedError():
            code = 11
        case TokenNotKnownError():
            code = 16
        case _:
            code = 3
    return refusal(code, str(error))


def refusal(code: int, text: str) -> Reply:
    """An error of a gRPC code, in words."""
    body = msgspec.json.encode({"error": text, "message": text, "code": code})
    return Reply(_HTTP_STATUSES[code], body)


def _answer(answer: Answer) -> dict[str, Any]:
    match answer:
        case Deleted(count):
            return {"response_delete_range": {"deleted": str(count)} if count else {}}
        case Found(items):
            return {"response_range": _found(items)}
        case _:
            return {"response_put": {}}


def _found(items: tuple[Item, ...]) -> dict[str, Any]:
    if not items:
        return {}
    return {"kvs": [_item(item) for item in items], "count": str(len(items))}


def _item(item: Item) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": item.key,
        "create_revision": str(item.create_revision),
        "mod_revision": str(item.mod_revision),
        "version": str(item.version),
    }
    if item.value:
        fields["value"] = item.value
    if item.lease_id:
        fields["lease"] = str(item.lease_id)
    return fields


def _event(event: KeyEvent) -> dict[str, Any]:
    if event.item is not None:
        return {"kv": _item(event.item)}
    return {"type": "DELETE", "kv": {"key": event.key, "mod_revision": str(event.revision)}}


def _decode(body: bytes, kind: type[Request]) -> Request:
    try:
        return decode_json(body, kind, strict=False)
    except UnreadableError as error:
        raise InvalidArgumentError(f"the request cannot be read: {error}") from error
