import random

import pytest

from node.errors import RequestError
from node.handlers.send_properties import (
    PropertyStamp,
    UniqueKeys,
    check_key,
    is_half,
    unique_key_of,
    with_delay_level,
)
from tandem.wire.demands import USUAL, demands_of
from tandem.wire.message_properties import decode_properties
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import BROKER

SUFFIX = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01C\x02"


def stamp() -> PropertyStamp:
    return PropertyStamp("C", lambda: "NEW")


def test_the_unique_key_is_found() -> None:
    assert unique_key_of("a\x01b\x02UNIQ_KEY\x01AB12\x02") == "AB12"
    assert unique_key_of("XUNIQ_KEY\x01AB12\x02") is None
    assert unique_key_of("") is None


def test_the_brokers_properties_are_added() -> None:
    assert stamp().stored("KEYS\x01k\x02UNIQ_KEY\x01U\x02", is_stamped=False) == (
        b"KEYS\x01k\x02UNIQ_KEY\x01U\x02" + SUFFIX
    )


def test_a_missing_separator_is_added_first() -> None:
    """4.9.8 clients leave out the last one."""
    assert stamp().stored("UNIQ_KEY\x01U", is_stamped=False) == b"UNIQ_KEY\x01U\x02" + SUFFIX


def test_a_missing_unique_key_is_made() -> None:
    assert stamp().stored("", is_stamped=False) == b"UNIQ_KEY\x01NEW\x02" + SUFFIX


def test_a_message_that_was_in_a_broker_before_has_everything_once() -> None:
    stored = stamp().stored(
        "CLUSTER\x01Other\x02UNIQ_KEY\x01U\x02POP_CK\x01x\x02a\x01b\x02", is_stamped=True
    )
    assert stored.count(b"CLUSTER\x01") == 1
    assert decode_properties(stored) == {
        "CLUSTER": "C",
        "UNIQ_KEY": "U",
        "a": "b",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_each_message_of_a_batch_gets_the_cluster_only() -> None:
    assert stamp().batch_suffix == b"CLUSTER\x01C\x02"


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_a_flag_of_a_transaction_without_its_property_is_refused(sys_flag: int) -> None:
    with pytest.raises(RequestError) as caught:
        is_half(USUAL, sys_flag, None)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("properties", "reconsume_times", "expected"),
    [
        ("", None, False),
        ("TRAN_MSG\x01true\x02", None, True),
        ("TRAN_MSG\x01TRUE\x02", 0, True),
        ("TRAN_MSG\x01false\x02XTRAN_MSG\x01true\x02", None, False),
        ("TRAN_MSG\x01true\x02", 1, True),
        ("TRAN_MSG\x01true\x02DELAY\x013\x02", 0, True),
        ("TRAN_MSG\x01true\x02DELAY\x013\x02", 1, False),
    ],
)
def test_the_property_decides_what_is_put_aside(
    properties: str,
    reconsume_times: int | None,
    expected: bool,  # noqa: FBT001
) -> None:
    assert is_half(demands_of(properties), 0, reconsume_times) is expected


def test_unique_keys_have_the_form_of_rocketmq_and_never_repeat() -> None:
    keys = UniqueKeys(BROKER, lambda: 1_700_000_000_000, random.Random(1))
    made = [keys.new() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {len(key) for key in made} == {32}
    assert all(key.startswith("7F000001") and key == key.upper() for key in made)


def test_a_delay_level_takes_the_place_of_another() -> None:
    assert with_delay_level("", 3) == "DELAY\x013\x02"
    assert with_delay_level("k\x01v\x02DELAY\x014\x02a\x01b", -1) == (
        "k\x01v\x02a\x01b\x02DELAY\x01-1\x02"
    )
    assert with_delay_level("MYDELAY\x014\x02", 1) == "MYDELAY\x014\x02DELAY\x011\x02"


def test_a_key_is_asked_for() -> None:
    check_key("KEYS\x01k\x02")
    for properties in ("", "KEYS\x01 \x02", "XKEYS\x01k\x02"):
        with pytest.raises(RequestError) as caught:
            check_key(properties)
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
