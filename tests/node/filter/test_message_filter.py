import pytest

from node.filter.message_filter import COMPILED_MAX, compile_filter
from node.filter.sql92_tokens import Sql92Error
from tandem.wire.message_properties import encode_properties


def matches(text: str, **properties: str) -> bool:
    return compile_filter(text).matches(encode_properties(properties))


def test_only_true_is_a_match() -> None:
    assert matches("a > 5", a="6", b="x")
    assert not matches("a > 5", a="5")
    assert not matches("a > 5", b="6")
    assert not matches("a > 5", a="x")
    assert matches("a > 5 OR b = '中'", a="1", b="中")


def test_properties_are_read_from_the_bytes_of_a_record() -> None:
    wanted = compile_filter("a = 'x'")
    assert wanted.matches(b"ba\x01y\x02a\x01x\x02")
    assert wanted.matches(b"a\x01x")
    assert not wanted.matches(b"")
    assert not wanted.matches(b"a\x01\xff\x02")
    assert compile_filter("a IS NULL").matches(b"a\x01\x02ab\x01x\x02")
    assert compile_filter("a IS NOT NULL").matches(b"a\x01\xff\x02")


def test_what_was_compiled_is_kept_and_so_are_errors() -> None:
    assert compile_filter("kept = 1") is compile_filter("kept = 1")
    first = compile_filter("a = 0")
    for number in range(COMPILED_MAX):
        compile_filter(f"a = {number} AND TRUE")
    assert compile_filter("a = 0") is not first
    for _ in range(2):
        with pytest.raises(Sql92Error, match="Was expecting"):
            compile_filter("a >")


def test_a_filter_says_what_a_message_costs() -> None:
    assert compile_filter("a = 1").cost < compile_filter("a = 1 AND b = 2").cost
