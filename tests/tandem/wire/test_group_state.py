"""The records of a fenced group: what is written is read, and nothing else is taken for one."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.feature_level import LEVEL_MAX
from tandem.wire.group_state import (
    GroupKeys,
    GroupLevelError,
    GroupState,
    LeaderRecord,
    LifeRecord,
    MalformedGroupRecordError,
    NodeRecord,
    decode_leader,
    decode_life,
    decode_node,
    decode_state,
    encode_record,
)


def test_what_is_written_is_read() -> None:
    state = GroupState(epoch=3, master="a", isr={"a": "a1"}, min_isr=2, reason="first")
    leader = LeaderRecord(node="a", session="s", epoch=3)
    node = NodeRecord(node="a", session="s", incarnation="a1", epoch=3, end=10)
    assert decode_state(encode_record(state)) == state
    assert decode_leader(encode_record(leader)) == leader
    assert decode_node(encode_record(node)) == node


def test_a_life_of_an_older_version_has_not_failed_and_an_older_version_reads_a_newer_one() -> None:
    life = LifeRecord(node="a", life=1, token="t", incarnation="i", epoch=1, confirm=5, failed="i")
    assert decode_life(encode_record(life)) == life
    fields = msgspec.json.decode(encode_record(life))
    del fields["failed"]
    assert decode_life(msgspec.json.encode(fields)) == msgspec.structs.replace(life, failed="")
    # What this version does not know either.
    assert decode_life(msgspec.json.encode(fields | {"newer": [1]})).life == 1


def test_keys_lie_below_the_group() -> None:
    keys = GroupKeys("c", "g")
    assert keys.state == "/tandem/c/g/state"
    assert keys.leader == "/tandem/c/g/leader"
    assert keys.node("a") == "/tandem/c/g/node/a"
    assert keys.node("a").startswith(keys.nodes)


@pytest.mark.parametrize(
    "record",
    [
        b'{"node":"\xff","session":"s","epoch":1}',
        b"[" * 100_000,
        b'{"node":"a","session":"s","epoch":1,"other":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"node":"a","session":"s","epoch":-1}',
        b'{"node":"a","session":"s","epoch":2147483648}',
        b'{"node":"a","session":"s","epoch":18446744073709551616}',
        b'{"node":"\\ud800","session":"s","epoch":1}',
    ],
)
def test_a_record_that_would_end_a_node_is_refused_with_its_key_and_a_remedy(
    record: bytes,
) -> None:
    with pytest.raises(MalformedGroupRecordError, match=r"^/k in the coordinator holds .*delete"):
        decode_leader(record, "/k")


@pytest.mark.parametrize("field", ["epoch", "end", "confirm", "promised", "seen_version"])
def test_no_number_of_a_record_is_more_than_the_rest_of_a_node_takes(field: str) -> None:
    record = NodeRecord(node="a", session="s", incarnation="i", epoch=1, end=2)
    for number in (-1, 2**63):
        value = encode_record(msgspec.structs.replace(record, **{field: number}))
        with pytest.raises(MalformedGroupRecordError):
            decode_node(value)
    assert decode_node(encode_record(record)) == record


@given(st.binary(max_size=60))
def test_anything_else_is_refused_with_its_key_and_kind(data: bytes) -> None:
    kinds: dict[str, Callable[[bytes, str], object]] = {
        "GroupState": decode_state,
        "LeaderRecord": decode_leader,
        "NodeRecord": decode_node,
    }
    for kind, decode in kinds.items():
        with pytest.raises(MalformedGroupRecordError) as caught:
            decode(data, "/k")
        assert (caught.value.key, caught.value.kind) == ("/k", kind)


def test_a_state_of_the_lowest_level_is_as_it_was_before_levels() -> None:
    state = GroupState(epoch=3, master="a", isr={"a": "a1"}, min_isr=2)
    said = msgspec.json.decode(encode_record(state))
    assert "needs" not in said
    del said["level"]
    assert decode_state(msgspec.json.encode(said)) == state


def test_a_state_of_a_higher_level_says_first_what_a_node_needs() -> None:
    state = GroupState(epoch=3, master="a", isr={"a": "a1"}, min_isr=2, level=2)
    value = encode_record(state)
    assert decode_state(value) == state
    assert value.startswith(b'{"needs":"TandemMQ ')
    with pytest.raises(msgspec.ValidationError, match="epoch"):  # what a version before levels does
        msgspec.json.decode(value, type=GroupState)


def test_a_level_that_nobody_knows_here_is_an_error_with_what_is_needed() -> None:
    value = b'{"needs":"TandemMQ 9","level":99,"state":"of another form","more":1}'
    with pytest.raises(GroupLevelError) as caught:
        decode_state(value, "/k")
    error = caught.value
    assert (error.key, error.level, error.level_max, error.needs) == (
        "/k",
        99,
        LEVEL_MAX,
        "TandemMQ 9",
    )
    with pytest.raises(MalformedGroupRecordError):
        decode_state(b'{"level":1,"state":7}', "/k")
