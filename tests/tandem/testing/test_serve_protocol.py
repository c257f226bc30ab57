"""Lines of `tandem testing serve`, whole, cut, and hostile. No cluster."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.testing.serve_protocol import (
    LINE_BYTES_MAX,
    ORDERS,
    PROTOCOL,
    Code,
    DoneLine,
    ErrorLine,
    FaultResult,
    LineCutter,
    LineError,
    OfPartition,
    OfSlowLink,
    Ready,
    ReadyLine,
    ServedNode,
    Trouble,
    encoded,
    read_order,
    schema,
)


def test_an_order_has_its_arguments_its_defaults_and_the_id_of_its_caller() -> None:
    order = read_order(b'{"partition": {"nodes": ["broker-a-1"]}, "id": 7}')
    assert order.name == "partition"
    assert order.arguments == OfPartition(nodes=["broker-a-1"])
    assert order.id == 7
    order = read_order(b'{"slow_link": {"node": "a", "other": "b", "delay_ms": 2.5}}')
    assert order.arguments == OfSlowLink(node="a", other="b", delay_ms=2.5)
    assert order.id is msgspec.UNSET
    assert read_order(b'{"id": "x", "heal": {}}').id == "x"


@pytest.mark.parametrize(
    ("line", "code", "line_id"),
    [
        (None, Code.TOO_LONG, None),
        (b"", Code.NOT_JSON, None),
        (b"kill_master", Code.NOT_JSON, None),
        (b"[]", Code.NOT_JSON, None),
        (b"null", Code.NOT_JSON, None),
        (b"\xff\xfe", Code.NOT_JSON, None),
        (b'{"kill": {"node": "\xff"}}', Code.WRONG_ARGUMENTS, None),
        (b"[" * 60_000, Code.NOT_JSON, None),
        (b'{"kill":' + b"[" * 60_000, Code.NOT_JSON, None),
        (b'{"id": ' + b"9" * 5_000 + b', "heal": {}}', Code.WRONG_ID, None),
        (b'{"id": 9223372036854775808, "heal": {}}', Code.WRONG_ID, None),
        (b'{"id": {"a": 1}, "heal": {}}', Code.WRONG_ID, None),
        (b'{"id": "' + b"x" * 256 + b'", "heal": {}}', Code.WRONG_ID, None),
        (b"{}", Code.NO_ORDER, None),
        (b'{"id": 3}', Code.NO_ORDER, 3),
        (b'{"heal": {}, "recover": {}, "id": 3}', Code.SEVERAL_ORDERS, 3),
        (b'{"explode": {}, "id": 3}', Code.UNKNOWN_ORDER, 3),
        (b'{"KILL_MASTER": {}}', Code.UNKNOWN_ORDER, None),
        (b'{"' + b"x" * 60_000 + b'": {}}', Code.UNKNOWN_ORDER, None),
        (b'{"kill": {}, "id": 3}', Code.WRONG_ARGUMENTS, 3),
        (b'{"kill": {"node": 1}}', Code.WRONG_ARGUMENTS, None),
        (b'{"kill": {"node": "a", "hard": true}}', Code.WRONG_ARGUMENTS, None),
        (b'{"kill_master": null}', Code.WRONG_ARGUMENTS, None),
        (b'{"kill_master": [1]}', Code.WRONG_ARGUMENTS, None),
        (b'{"partition": {"nodes": []}}', Code.WRONG_ARGUMENTS, None),
        (b'{"partition": {"nodes": ["a"], "direction": "up"}}', Code.WRONG_ARGUMENTS, None),
        (b'{"wait_in_sync": {"seconds_max": 1e400}}', Code.WRONG_ARGUMENTS, None),
        (b'{"wait_in_sync": {"seconds_max": 0}}', Code.WRONG_ARGUMENTS, None),
        (b'{"topic": {"queues": 1000000}}', Code.WRONG_ARGUMENTS, None),
    ],
)
def test_what_is_no_order_is_answered_with_a_code_and_its_id(
    line: bytes | None, code: Code, line_id: int | None
) -> None:
    with pytest.raises(LineError) as caught:
        read_order(line)
    assert caught.value.code is code
    assert caught.value.id == (msgspec.UNSET if line_id is None else line_id)
    assert 0 < len(caught.value.text) < 1_000
    assert "\n" not in caught.value.text


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_line_is_an_order_or_a_line_error(line: bytes) -> None:
    assert code_of(line) in {None, *Code}


def code_of(line: bytes) -> Code | None:
    """What is wrong with a line."""
    try:
        assert read_order(line).name in ORDERS
    except LineError as error:
        return error.code
    return None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.sampled_from(sorted(ORDERS)), json_values, json_values)
def test_any_arguments_are_right_or_said_to_be_wrong(
    name: str, arguments: object, line_id: object
) -> None:
    line = json.dumps({name: arguments, "id": line_id}).encode()
    assert code_of(line) in {None, Code.WRONG_ARGUMENTS, Code.WRONG_ID, Code.NOT_JSON}


LINES = [b'{"heal": {}}', b"", b"x" * LINE_BYTES_MAX, b"y" * (LINE_BYTES_MAX + 1), b"last"]
CUT = [*LINES[:3], None, b"last"]


@pytest.mark.parametrize("size", [1_000, 65_535, 65_536, 65_537, 1_000_000])
def test_lines_are_the_same_however_their_bytes_come(size: int) -> None:
    data = b"\n".join(LINES)
    cutter = LineCutter()
    found = [
        line
        for begin in range(0, len(data), size)
        for line in cutter.feed(data[begin : begin + size])
    ]
    assert found + cutter.end() == CUT
    assert cutter.end() == []


@given(st.lists(st.binary(max_size=20)))
def test_nothing_is_lost_between_two_reads(pieces: list[bytes]) -> None:
    cutter = LineCutter()
    found = [line for piece in pieces for line in cutter.feed(piece)] + cutter.end()
    data = b"".join(pieces)
    expected = data.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


def test_a_line_without_an_end_is_not_kept_when_it_is_too_long() -> None:
    cutter = LineCutter()
    for _ in range(1_000):
        assert cutter.feed(b"z" * 10_000) == []
    assert cutter.feed(b"\n{}\n") == [None, b"{}"]


def ready() -> Ready:
    return Ready(
        name_servers="127.1.1.201:10911;127.1.1.202:10911",
        group="broker-a",
        kind="fenced",
        master="broker-a-1",
        nodes=[ServedNode(name="broker-a-1", address="127.1.1.201:10911", log_file="/x.log")],
        topics=["Orders"],
        cluster_file="/x/cluster.yaml",
        ca_file="",
        pid=7,
        version="0.1.0",
    )


def test_each_answer_is_one_line_whatever_is_in_it() -> None:
    evil = "a\nb\r\u2028\x1b[2J"
    lines = [
        encoded(ReadyLine(ready())),
        encoded(DoneLine(id=evil, done="cut", result=FaultResult(fault=1))),
        encoded(ErrorLine(error=Trouble(Code.REFUSED, evil))),
    ]
    for line in lines:
        assert line.count(b"\n") == 1
        assert line.endswith(b"}\n")
        assert b"\x1b" not in line
    assert json.loads(lines[1]) == {"id": evil, "done": "cut", "result": {"fault": 1}}
    # A program may look at the beginning of a line without an id.
    assert lines[2].startswith(b'{"error":{"code":"refused"')
    assert json.loads(lines[0])["ready"]["protocol"] == PROTOCOL


def test_the_schema_has_each_order_its_arguments_and_its_result() -> None:
    found = schema()
    definitions = found["$defs"]
    orders = {each["required"][0]: each for each in definitions["Order"]["oneOf"]}
    assert set(orders) == set(ORDERS)
    assert all(each["additionalProperties"] is False for each in orders.values())
    assert all(each["description"] for each in orders.values())
    answers = definitions["Answer"]["oneOf"]
    assert len(answers) == len(ORDERS) + 2
    text = json.dumps(found)
    for place in {part.split('"')[0] for part in text.split('"$ref": "#/$defs/')[1:]}:
        assert place in definitions
    assert definitions["OfPartition"]["properties"]["direction"]["enum"] == ["both", "in", "out"]
    assert set(definitions["Code"]["enum"]) == {code.value for code in Code}


def test_an_id_is_what_the_schema_says() -> None:
    kinds = {
        each["type"] for each in schema()["$defs"]["Order"]["oneOf"][0]["properties"]["id"]["anyOf"]
    }
    assert kinds == {"integer", "string"}
