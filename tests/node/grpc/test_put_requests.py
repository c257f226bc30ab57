from typing import Any

import pytest

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.grpc.put_requests import check_message, message_type, milliseconds, put_request
from tandem.wire.message_properties import parse_properties
from tests.node.grpc.grpc_world import message

NOW_MS = 1_700_000_000_000


def with_properties(count: int = 1, /, **properties: str) -> pb.Message:
    found = message()
    for number in range(count - 1):
        found.user_properties[f"n{number}"] = "v"
    for name, value in properties.items():
        found.user_properties[name] = value
    return found


def with_recovery(seconds: int) -> pb.Message:
    found = message(message_type=pb.TRANSACTION)
    found.system_properties.orphaned_transaction_recovery_duration.seconds = seconds
    return found


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(body=b""), pb.MESSAGE_BODY_EMPTY),
        (message(body=b"x" * 101), pb.MESSAGE_BODY_TOO_LARGE),
        (message(message_id=" "), pb.ILLEGAL_MESSAGE_ID),
        (message(message_id="a\x01b"), pb.ILLEGAL_MESSAGE_ID),
        (message(message_id="x" * 256), pb.ILLEGAL_MESSAGE_ID),
        (message(tag=" "), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x02b"), pb.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a", " "]), pb.ILLEGAL_MESSAGE_KEY),
        (message(keys=["a\x01"]), pb.ILLEGAL_MESSAGE_KEY),
        (message(message_group=" "), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group="g\x7f"), pb.ILLEGAL_MESSAGE_GROUP),
        (message(deliver_ms=NOW_MS + 86_400_001), pb.ILLEGAL_DELIVERY_TIME),
        (message(body_encoding=pb.GZIP), pb.NOT_IMPLEMENTED),
        (with_recovery(3_601), pb.BAD_REQUEST),
        (message(priority=-1), pb.BAD_REQUEST),
        (message(lite_topic="l"), pb.NOT_IMPLEMENTED),
        (with_recovery(-1), pb.BAD_REQUEST),
        (with_properties(TAGS="x"), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_properties(TANDEM_ACK="flushed"), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_properties(a="b\x02c"), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_properties(1, **{"a\x01": "b"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_properties(1, **{"": "b"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_properties(129, a="b"), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (with_properties(a="x" * 16_384), pb.MESSAGE_PROPERTIES_TOO_LARGE),
    ],
)
def test_what_cannot_be_stored_has_the_code_of_the_proxy(sent: pb.Message, code: int) -> None:
    with pytest.raises(CallError) as caught:
        check_message(sent, NOW_MS, 100)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "sent",
    [
        message(body=b"x" * 100),
        message(tag="a", keys=["a", "b"], message_group="g" * 63),
        message(deliver_ms=NOW_MS + 86_400_000),
        message(deliver_ms=NOW_MS - 10_000),
        with_recovery(3_600),
        with_properties(128, a="b"),
        with_properties(a="ü ß 漢"),
    ],
)
def test_what_is_at_the_bounds_is_taken(sent: pb.Message) -> None:
    check_message(sent, NOW_MS, 100)


def properties_of(sent: pb.Message) -> dict[str, str]:
    return parse_properties(put_request(sent, "T", 3).properties or "")


def test_a_request_has_all_that_the_message_says() -> None:
    sent = message("T", tag="a", keys=["k", "l"], message_group="g", trace_context="tc")
    sent.user_properties["p"] = "v"
    header = put_request(sent, "T", 3)
    assert (header.topic, header.producer_group, header.queue_id) == ("T", "T", 3)
    assert (header.sys_flag, header.born_timestamp) == (0, 1_700_000_000_123)
    assert properties_of(sent) == {
        "p": "v",
        "UNIQ_KEY": sent.system_properties.message_id,
        "PGROUP": "T",
        "TAGS": "a",
        "KEYS": "k l",
        "__SHARDINGKEY": "g",
        "BORN_TIMESTAMP": "1700000000123",
        "__BORNHOST": "host-of-the-client",
        "TRACE_CONTEXT": "tc",
    }


def test_halves_and_delays_are_marked() -> None:
    half = with_recovery(30)
    assert put_request(half, "T", 0).sys_flag == 4
    found = properties_of(half)
    assert (found["TRAN_MSG"], found["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")
    late = properties_of(message(message_type=pb.DELAY, deliver_ms=NOW_MS))
    assert late["TIMER_DELIVER_MS"] == str(NOW_MS)
    assert properties_of(message(priority=0))["_SYS_MSG_PRIORITY_"] == "0"


def test_what_would_break_the_properties_of_a_record_is_left_out() -> None:
    sent = message(trace_context="a\x02b")
    sent.system_properties.born_host = "h\x01"
    assert {"TRACE_CONTEXT", "__BORNHOST"}.isdisjoint(properties_of(sent))


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({}, "NORMAL"),
        ({"message_group": "g"}, "FIFO"),
        ({"priority": 0}, "PRIORITY"),
        ({"priority": 0, "message_group": "g"}, "FIFO"),
        ({"deliver_ms": 1}, "DELAY"),
        ({"deliver_ms": 1, "message_group": "g"}, "DELAY"),
        ({"message_type": pb.TRANSACTION, "message_group": "g"}, "TRANSACTION"),
    ],
)
def test_the_type_is_that_of_what_is_asked_for(system: dict[str, Any], kind: str) -> None:
    assert message_type(message(**system)) == kind


def test_times_are_milliseconds() -> None:
    sent = message(deliver_ms=1_234_567)
    assert milliseconds(sent.system_properties.delivery_timestamp) == 1_234_567
