import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.coordinator.gateway import Gateway, WatchOrder
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import CompactedError, InvalidArgumentError
from tandem.coordinator.tokens import Tokens

PATHS = [
    "/v3/lease/grant",
    "/v3/lease/keepalive",
    "/v3/lease/revoke",
    "/v3/kv/range",
    "/v3/kv/put",
    "/v3/kv/deleterange",
    "/v3/kv/txn",
    "/v3/kv/compaction",
    "/v3/maintenance/status",
]


def some_tokens() -> Tokens:
    return Tokens("right", itertools.count(1).__next__().__str__)


class Asked:
    """A gateway, asked in JSON."""

    def __init__(self) -> None:
        self.gateway = Gateway(KeyValueStore(), itertools.count(100).__next__, some_tokens())

    def __call__(self, path: str, request: object, *, status: int = 200) -> Any:  # noqa: ANN401
        reply = self.gateway.answer(f"/v3/{path}", json.dumps(request).encode(), 0.0)
        assert reply.status == status, reply.body
        body = json.loads(reply.body)
        if isinstance(body, dict):
            body.pop("header", None)
        return body


def test_replies_are_those_that_etcd_was_seen_to_give() -> None:
    asked = Asked()
    assert asked("lease/grant", {"TTL": "1"}) == {"ID": "100", "TTL": "2"}
    assert asked("lease/keepalive", {"ID": "100"})["result"]["TTL"] == "2"
    assert "TTL" not in asked("lease/keepalive", {"ID": "12345"})["result"]
    assert asked("kv/range", {"key": "YQ=="}) == {}
    assert asked("kv/put", {"key": "YQ==", "value": "YQ=="}) == {}
    assert asked("kv/put", {"key": "YWI=", "value": "YQ==", "lease": "100"}) == {}
    assert asked("kv/range", {"key": "YQ==", "range_end": "Yg=="}) == {
        "kvs": [
            {
                "key": "YQ==",
                "create_revision": "2",
                "mod_revision": "2",
                "version": "1",
                "value": "YQ==",
            },
            {
                "key": "YWI=",
                "create_revision": "3",
                "mod_revision": "3",
                "version": "1",
                "value": "YQ==",
                "lease": "100",
            },
        ],
        "count": "2",
    }
    compare = {"key": "YQ==", "target": "MOD", "result": "EQUAL", "mod_revision": "2"}
    operations = [
        {"request_put": {"key": "YQ==", "value": "Yg=="}},
        {"request_delete_range": {"key": "YWI="}},
    ]
    transaction = {
        "compare": [compare],
        "success": operations,
        "failure": [{"request_range": {"key": "YQ=="}}],
    }
    assert asked("kv/txn", transaction) == {
        "succeeded": True,
        "responses": [{"response_put": {}}, {"response_delete_range": {"deleted": "1"}}],
    }
    (answer,) = asked("kv/txn", transaction)["responses"]
    assert answer["response_range"]["count"] == "1"
    assert asked("kv/deleterange", {"key": "YQ=="}) == {"deleted": "1"}
    assert asked("lease/revoke", {"ID": 100}) == {}
    assert asked("maintenance/status", {})["server"] == "tandem-embedded"


@pytest.mark.parametrize(
    ("path", "request_", "status", "code", "words"),
    [
        ("lease/revoke", {"ID": "12345"}, 404, 5, "etcdserver: requested lease not found"),
        (
            "kv/put",
            {"key": "YQ==", "lease": "123"},
            404,
            5,
            "etcdserver: requested lease not found",
        ),
        ("kv/range", {}, 400, 3, "etcdserver: key is not provided"),
        ("kv/txn", {"compare": "x"}, 400, 3, "the request cannot be read: "),
        ("kv/txn", {"success": [{}]}, 400, 3, "an operation is none of put, delete and range"),
        (
            "kv/txn",
            {"success": [{"request_put": {"key": "YQ=="}}] * 2},
            400,
            3,
            "etcdserver: duplicate key given in txn request",
        ),
        (
            "auth/authenticate",
            {"name": "root", "password": "x"},
            400,
            3,
            "etcdserver: authentication failed, invalid user ID or password",
        ),
        ("kv/compaction", {"revision": "9"}, 400, 3, "etcdserver: mvcc: required revision is a"),
        ("lease/grant", {"TTL": "99999999999"}, 400, 3, "etcdserver: too large lease TTL"),
    ],
)
def test_refusals_are_those_that_etcd_was_seen_to_give(
    path: str, request_: object, status: int, code: int, words: str
) -> None:
    body = Asked()(path, request_, status=status)
    assert body["code"] == code
    assert body["message"].startswith(words)
    assert body["error"] == body["message"]


def test_a_lease_with_an_id_of_the_caller_is_granted_once() -> None:
    asked = Asked()
    assert asked("lease/grant", {"TTL": 5, "ID": "7"})["ID"] == "7"
    assert asked("lease/grant", {"TTL": 5, "ID": "7"}, status=412)["code"] == 9


@pytest.mark.parametrize("target", ["VERSION", "CREATE", "MOD", "VALUE", "LEASE"])
def test_every_target_has_its_field(target: str) -> None:
    asked = Asked()
    asked("kv/put", {"key": "YQ==", "value": "YQ=="})
    fields = {"version": "1", "create_revision": "2", "mod_revision": "2", "value": "YQ=="}
    compare = {"key": "YQ==", "target": target, "result": "EQUAL", **fields}
    assert asked("kv/txn", {"compare": [compare]})["succeeded"]


def test_a_path_that_is_not_served_is_told() -> None:
    assert (
        Gateway(KeyValueStore(), lambda: 1, some_tokens()).answer("/v3/nope", b"{}", 0.0).status
        == 404
    )


def test_a_watch_begins_where_it_asks_or_now() -> None:
    asked = Asked()
    asked("kv/put", {"key": "YQ=="})
    order = asked.gateway.watch_order(b'{"create_request":{"key":"YQ==","start_revision":"2"}}')
    assert order == WatchOrder(b"a", b"", 2)
    (event,) = json.loads(asked.gateway.watch_line(order, 3))["result"]["events"]
    assert event["kv"]["mod_revision"] == "2"
    assert asked.gateway.watch_line(order, 2) == b""
    assert asked.gateway.watch_order(b'{"create_request":{"key":"YQ=="}}').start_revision == 3
    asked("kv/deleterange", {"key": "YQ=="})
    (_, event) = json.loads(asked.gateway.watch_line(order, 4))["result"]["events"]
    assert event == {"type": "DELETE", "kv": {"key": "YQ==", "mod_revision": "3"}}
    asked("kv/compaction", {"revision": "3"})
    with pytest.raises(CompactedError) as caught:
        asked.gateway.watch_line(order, 4)
    line = json.loads(asked.gateway.cancelled_line(caught.value))["result"]
    assert (line["canceled"], line["compact_revision"]) == (True, "3")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"create_request":{}}', b"[1"])
def test_a_watch_of_nothing_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        Gateway(KeyValueStore(), lambda: 1, some_tokens()).watch_order(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "range_end", "ID", "TTL", "compare", "success", "request_put"]),
            inner,
            max_size=4,
        )
    ),
)


@given(st.sampled_from(PATHS), st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()))
def test_nonsense_is_answered(path: str, body: bytes) -> None:
    assert Gateway(KeyValueStore(), lambda: 1, some_tokens()).answer(path, body, 0.0).status in (
        200,
        400,
        404,
    )
