import contextlib
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.filter.java_values import EvaluationError
from node.filter.sql92_expressions import DEPTH_MAX, TERMS_MAX
from node.filter.sql92_parser import EXPRESSION_CHARS_MAX, parse
from node.filter.sql92_tokens import Sql92Error

VECTORS = Path(__file__).parents[2] / "data" / "rocketmq-5.3.3" / "sql92.json"

WORDS = (
    *(
        "a",
        "b",
        "'x'",
        "''",
        "1",
        "1.5",
        "12L",
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "NULL",
    ),
    *("IS", "CONTAINS", "=", "<>", ">", "<=", "(", ")", ",", "+", "-", "--", "/*", "*/", ";", "\n"),
)


def vectors() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(VECTORS.read_text("utf-8"))
    assert len(rows) == 161
    return rows


def result_of(text: str, properties: dict[str, str]) -> object:
    try:
        expression = parse(text)
    except Sql92Error:
        return "PARSE_ERROR"
    try:
        return expression.evaluate(properties.get)
    except EvaluationError:
        return "ERROR"


@pytest.mark.parametrize("row", vectors(), ids=lambda row: f"{row['expr']} {row['props']}")
def test_every_vector_of_rocketmq(row: dict[str, Any]) -> None:
    assert result_of(row["expr"], row["props"]) == row["result"]
    if "tree" in row:
        assert parse(row["expr"]).text == row["tree"]
    else:
        with pytest.raises(Sql92Error) as caught:
            parse(row["expr"])
        said = row["error"].partition(": ")[2].partition(" <- ")[0]
        assert str(caught.value) == said


def test_only_one_token_after_the_expression_is_looked_at() -> None:
    assert parse("a = 1 b ; '").text == "(a == 1)"
    with pytest.raises(Sql92Error, match="Lexical error at line 1, column 7"):
        parse("a = 1 ; b")


def test_not_binds_tightest() -> None:
    assert parse("NOT a = 1").text == "((NOT a) == 1)"
    assert parse("NOT (a > 1)").text == "(NOT (a > 1))"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a NOT 1", 'Encountered " "NOT" "NOT "" at line 1, column 3.\nWas expecting one of:\n'),
        ("+ )", 'Encountered " "+" "+ "" at line 1, column 1.\nWas expecting one of:\n'),
        ("a IS 1", '\n    "NOT" ...\n    "NULL" ...\n    '),
        ("a IN ('x'", 'column 9.\nWas expecting one of:\n    "," ...\n    ")" ...\n    '),
        ("a BETWEEN 1 b", 'column 13.\nWas expecting:\n    "AND" ...\n    '),
    ],
)
def test_a_fault_is_named_with_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(Sql92Error) as caught:
        parse(text)
    assert message in str(caught.value)


_NOTHING_SECONDS: Final = 0.02
"""In so short a time the clock, and what is the same for every text, is most of what is seen."""

_HOSTILE: Final = [
    "(" * 5_000 + "a = 1" + ")" * 5_000,
    "NOT " * 5_000 + "a",
    "-" * 30_000,
    "+ " * 5_000 + "1",
    "a" + " IS NULL" * 5_000,
    "a" + " CONTAINS 'x'" * 4_000,
    " OR ".join(["a = 1"] * 5_000),
    "a = 1 AND " * 5_000,
    "a = '" + "x" * EXPRESSION_CHARS_MAX + "'",
    "a BETWEEN " * 5_000,
    "/*" * 30_000,
    " " * 60_000 + "+" * 60 + ")",
    "a IN (" + "'x'," * 16_000 + ")",
    "a IN '" + "x" * 65_000 + "'",
    "(" * 60_000,
    "((a = 1) OR (" * 4_000,
    "1" * 60_000,
    "1." + "1" * 60_000,
    "'" * 65_535,
]


@pytest.mark.parametrize("text", _HOSTILE)
def test_hostile_texts_are_refused_in_time_that_grows_with_their_length(text: str) -> None:
    quarter = text[: len(text) // 4]
    taken = [(_refusal_seconds(text), _refusal_seconds(quarter)) for _ in range(3)]
    whole_seconds, quarter_seconds = map(min, zip(*taken, strict=True))
    # 4 times as long, on any machine: the time would be 16 times as long if it grew as a square.
    assert whole_seconds < max(10 * quarter_seconds, _NOTHING_SECONDS)


def _refusal_seconds(text: str) -> float:
    """The CPU time that it takes to refuse a text; a quarter of one may be an expression."""
    begun = time.process_time()
    with contextlib.suppress(Sql92Error):
        parse(text)
    return time.process_time() - begun


@pytest.mark.parametrize("text", _HOSTILE)
def test_hostile_texts_are_refused_in_few_words(text: str) -> None:
    with pytest.raises(Sql92Error) as caught:
        parse(text)
    assert len(str(caught.value)) < 3_000


def test_the_first_of_several_plus_signs_is_the_fault() -> None:
    for text in ("+(+ + )", "+ + +)", "+(a = +)"):
        with pytest.raises(Sql92Error, match='"\\+" "\\+ "" at line 1, column 1'):
            parse(text)
    assert parse("+(a = +1) AND + + 5 > +a").text == "((a == 1) && (5 > a))"


def test_what_is_allowed_is_large_enough() -> None:
    ids = ",".join(f"'{number}'" for number in range(8_000))
    assert result_of(f"a IN ({ids})", {"a": "7999"}) is True
    chain = " OR ".join(f"a = {number}" for number in range(TERMS_MAX // 4))
    assert result_of(chain, {"a": "255"}) is True
    nested = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    assert result_of(nested, {"a": "1"}) is True


@pytest.mark.slow
@given(st.text(max_size=200) | st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    result_of(text, {"a": "1", "b": text})
