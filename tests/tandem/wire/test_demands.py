"""What a message asks for, by its properties: as RocketMQ reads them, and the list in C."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire import demands
from tandem.wire.demands import (
    PROPERTY_DEMANDS,
    UNWAITING,
    USUAL,
    Demand,
    Demands,
    c_table,
    demands_of,
    is_stamped,
)
from tandem.wire.errors import IllegalPropertyError
from tandem.wire.message_properties import parse_properties
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ("", True),
        ("WAIT\x01true\x02", True),
        ("WAIT\x01TRUE\x02", True),
        ("KEYS\x01k\x02WAIT\x01false\x02TAGS\x01t\x02", False),
        ("WAIT\x01false", False),
        ("WAIT\x01true", True),
        ("WAIT\x01nonsense\x02", False),
        ("AWAIT\x01false\x02", True),
        ("AWAIT\x01true\x02WAIT\x01false\x02", False),
        ("WAIT\x01false\x02AWAIT\x01true\x02", False),
        ("WAIT\x01false\x02WAIT\x01true\x02", True),
        ("KEYS\x01WAIT\x02", True),
    ],
)
def test_waiting_is_the_default_and_anything_but_true_is_not(
    properties: str, *, waits: bool
) -> None:
    """Message.isWaitStoreMsgOK."""
    assert demands_of(properties) is (USUAL if waits else UNWAITING)


@pytest.mark.parametrize("name", PROPERTY_DEMANDS)
def test_each_property_of_the_table_is_asked_for(name: str) -> None:
    value = {"DELAY": "3", "TRAN_MSG": "true", "TANDEM_ACK": "flushed"}.get(name, "1")
    asked = demands_of(f"KEYS\x01k\x02{name}\x01{value}\x02")
    demand = PROPERTY_DEMANDS[name]
    assert not asked.is_usual
    assert (asked.delay_level > 0) is (demand is Demand.DELAYED)
    assert asked.timed is (demand is Demand.TIMED)
    assert asked.transaction is (demand is Demand.HALF)
    assert asked.inner is (demand is Demand.INNER)
    assert asked.flushed is (demand is Demand.FLUSHED)
    assert asked.stamped is is_stamped(f"{name}\x01{value}") is (demand is Demand.STAMPED)
    assert demands_of(f"X{name}\x01{value}\x02") == USUAL, "another name"
    assert demands_of(f"KEYS\x01{name}\x02") == USUAL, "a value"


@pytest.mark.parametrize(
    ("value", "level"),
    [("3", 3), ("+3", 3), ("-1", -1), ("0", 0), ("003", 3), ("\uff13", 3), ("\u0663", 3)],
)
def test_a_delay_level_is_a_number_as_java_reads_it(value: str, level: int) -> None:
    assert demands_of(f"DELAY\x01{value}\x02").delay_level == level
    assert demands_of(f"DELAY\x019\x02k\x01v\x02DELAY\x01{value}").delay_level == level


@pytest.mark.parametrize("value", [" 3", "3 ", "1_0", "soon", "3.0", "2147483648", "\u2167", "+"])
def test_another_delay_level_is_refused(value: str) -> None:
    with pytest.raises(IllegalPropertyError) as caught:
        demands_of(f"DELAY\x01{value}\x02")
    assert caught.value.name == "DELAY"


def test_a_long_delay_level_is_not_said_again_as_a_whole() -> None:
    with pytest.raises(IllegalPropertyError) as caught:
        demands_of("DELAY\x01" + "9" * 100_000)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_a_transaction_is_one_by_its_value(value: str) -> None:
    assert demands_of(f"TRAN_MSG\x01{value}\x02").transaction
    assert not demands_of("TRAN_MSG\x01false\x02XTRAN_MSG\x01true\x02").transaction


ASKING = [f"{n}\x01{v}\x02" for n in PROPERTY_DEMANDS for v in ("1", "true", "flushed")]
OTHER = [
    "WAIT\x01true\x02",
    "WAIT\x01false\x02",
    "W\x01",
    "\x02",
    "DEL",
    "MODEL\x01a\x02",
    "XWAIT\x01",
]
PIECES = st.sampled_from(ASKING) | st.sampled_from(OTHER)


@given(st.lists(PIECES, max_size=6).map("".join))
def test_the_quick_look_decides_as_the_long_one(properties: str) -> None:
    try:
        looked: Demands | None = demands._looked_at(parse_properties(properties))
    except IllegalPropertyError:
        looked = None
    try:
        asked: Demands | None = demands_of(properties)
    except IllegalPropertyError:
        asked = None
    assert asked == looked


def test_the_list_in_c_is_made_from_the_table() -> None:
    """Write what `c_table` returns to that file, and have `scripts/setup` compile it."""
    assert (ROOT / "tandem/wire/native_demands.h").read_text() == c_table()
