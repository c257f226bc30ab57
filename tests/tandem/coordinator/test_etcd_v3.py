import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.coordinator import etcd_v3
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
    TransactionResult,
)

HEADER = b'"header":{"cluster_id":"3249","member_id":"3319","revision":"4","raft_term":"2"}'


def refusal(code: int, message: str) -> bytes:
    return json.dumps({"error": message, "message": message, "code": code}).encode()


def test_requests_are_those_that_etcd_was_seen_to_take() -> None:
    assert json.loads(etcd_v3.grant_request(5)) == {"TTL": "5"}
    assert json.loads(etcd_v3.lease_request(2**62)) == {"ID": "4611686018427387904"}
    assert json.loads(etcd_v3.range_request("a/")) == {"key": "YS8=", "range_end": "YTA="}
    assert json.loads(etcd_v3.range_request("")) == {"key": "AA==", "range_end": "AA=="}
    assert json.loads(etcd_v3.watch_request("a/", 7)) == {
        "create_request": {"key": "YS8=", "range_end": "YTA=", "start_revision": "7"}
    }
    assert json.loads(etcd_v3.authenticate_request("u", "p")) == {"name": "u", "password": "p"}
    operations: list[Put | Delete] = [Put("b", b"\xff", 9), Delete("c")]
    assert json.loads(etcd_v3.transaction_request([Compare("a", 2)], operations)) == {
        "compare": [{"key": "YQ==", "target": "MOD", "result": "EQUAL", "mod_revision": "2"}],
        "success": [
            {"request_put": {"key": "Yg==", "value": "/w==", "lease": "9"}},
            {"request_delete_range": {"key": "Yw=="}},
        ],
    }


def test_replies_are_read_as_etcd_writes_them_zeros_left_out() -> None:
    granted = b"{" + HEADER + b',"ID":"2324035517153628421","TTL":"2"}'
    assert etcd_v3.decode_grant(granted) == Lease(2324035517153628421, 2)
    kept = b'{"result":{' + HEADER + b',"ID":"12345","TTL":"5"}}\n'
    assert etcd_v3.decode_keep_alive(kept) == 5
    ranged = (
        b"{"
        + HEADER
        + (
            b',"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"4","version":"2"}],'
            b'"count":"1"}'
        )
    )
    snapshot = etcd_v3.decode_range(ranged)
    assert snapshot.revision == 4
    assert snapshot.values == {"a": KeyValue("a", b"", 2, 4, 0)}
    assert etcd_v3.decode_range(b"{" + HEADER + b"}").values == {}
    done = b"{" + HEADER + b',"succeeded":true,"responses":[{"response_put":{}}]}'
    assert etcd_v3.decode_transaction(done) == TransactionResult(succeeded=True, revision=4)
    failed = b"{" + HEADER + b"}"
    assert not etcd_v3.decode_transaction(failed).succeeded


def test_a_keep_alive_without_a_time_means_that_the_lease_is_gone() -> None:
    with pytest.raises(LeaseLostError):
        etcd_v3.decode_keep_alive(b'{"result":{' + HEADER + b',"ID":"12345"}}')


def test_a_watch_tells_puts_and_deletes() -> None:
    line = (
        b'{"result":{'
        + HEADER
        + (
            b',"events":[{"kv":{"key":"YQ==","create_revision":"2","mod_revision":"3","version":"1",'
            b'"value":"YQ==","lease":"7"}},{"type":"DELETE","kv":{"key":"/w==","mod_revision":"4"}}]}}'
        )
    )
    value = KeyValue("a", b"a", 2, 3, 7)
    assert etcd_v3.decode_watch(line) == (Event("a", value, 3), Event("\\xff", None, 4))
    assert etcd_v3.decode_watch(b'{"result":{"created":true}}') == ()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b'{"result":{"canceled":true,"compact_revision":"3"}}', NoAnswer.COMPACTED),
        (b'{"result":{"canceled":true,"cancel_reason":"why"}}', NoAnswer.ENDED),
        (b'{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}', NoAnswer.SAID),
        (b'{"error":"context canceled"}', NoAnswer.SAID),
        (b"<html>", NoAnswer.UNREADABLE),
    ],
)
def test_a_watch_that_ends_says_why(line: bytes, cause: NoAnswer) -> None:
    with pytest.raises(CoordinatorUnavailableError) as caught:
        etcd_v3.decode_watch(line)
    assert caught.value.cause is cause


def test_a_watch_with_a_stale_token_asks_for_a_new_one() -> None:
    reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
    line = json.dumps({"result": {"created": True, "canceled": True, "cancel_reason": reason}})
    with pytest.raises(etcd_v3.InvalidTokenError) as caught:
        etcd_v3.decode_watch(line.encode())
    assert caught.value.cause is RefusalCause.TOKEN


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (404, b"404 page not found\n", RefusalCause.NO_GATEWAY),
        (400, refusal(3, "etcdserver: key is not provided"), RefusalCause.OTHER),
        (403, refusal(7, "etcdserver: permission denied"), RefusalCause.PERMISSION),
        (412, refusal(9, "etcdserver: authentication is not enabled"), RefusalCause.NO_USERS),
        (429, refusal(8, "etcdserver: mvcc: database space exceeded"), RefusalCause.SPACE),
        (401, refusal(16, "etcdserver: invalid auth token"), RefusalCause.TOKEN),
        (400, refusal(3, "etcdserver: user name is empty"), RefusalCause.USER_NEEDED),
    ],
)
def test_after_a_refusal_nothing_was_done(status: int, body: bytes, cause: RefusalCause) -> None:
    with pytest.raises(CoordinatorRefusedError) as caught:
        etcd_v3.raise_error(status, body)
    assert caught.value.cause is cause
    needs_token = cause in (RefusalCause.TOKEN, RefusalCause.USER_NEEDED)
    assert isinstance(caught.value, etcd_v3.InvalidTokenError) == needs_token


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, refusal(8, "etcdserver: too many requests")),
        (503, refusal(14, "etcdserver: request timed out")),
        (504, refusal(4, "context deadline exceeded")),
        (408, refusal(1, "context canceled")),
        (500, refusal(2, "etcdserver: server stopped")),
        (502, b"<html>bad gateway</html>"),
    ],
)
def test_after_other_errors_it_may_have_been_done(status: int, body: bytes) -> None:
    with pytest.raises(CoordinatorUnavailableError) as caught:
        etcd_v3.raise_error(status, body)
    assert caught.value.cause is NoAnswer.SAID


def test_a_lease_that_is_not_found_is_lost() -> None:
    with pytest.raises(LeaseLostError):
        etcd_v3.raise_error(404, refusal(5, "etcdserver: requested lease not found"))


def test_a_refusal_has_the_words_of_etcd_and_the_remedy() -> None:
    with pytest.raises(CoordinatorRefusedError) as caught:
        etcd_v3.raise_error(403, refusal(7, "etcdserver: permission denied"))
    assert str(caught.value) == (
        "the coordinator refused: permission denied;"
        " grant its user readwrite on the prefix /tandem/"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "decode",
    [
        etcd_v3.decode_grant,
        etcd_v3.decode_keep_alive,
        etcd_v3.decode_range,
        etcd_v3.decode_transaction,
        etcd_v3.decode_token,
        etcd_v3.decode_watch,
    ],
)
@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(
        lambda value: json.dumps({"result": value, "kvs": value, "header": value}).encode()
    )
)
def test_an_answer_that_is_none_leaves_the_outcome_open(
    decode: Callable[[bytes], object], body: bytes
) -> None:
    with contextlib.suppress(CoordinatorError):
        decode(body)
