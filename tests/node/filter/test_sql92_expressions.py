import pytest

from node.filter.java_values import EvaluationError, Long, Value
from node.filter.sql92_expressions import (
    DEPTH_MAX,
    FALSE,
    NULL,
    TERMS_MAX,
    TRUE,
    Expression,
    as_boolean,
    between,
    conjunction,
    decimal,
    disjunction,
    equality,
    floating_point,
    is_null,
    membership,
    minus,
    negation,
    not_between,
    property_of,
    relation,
    text_constant,
    text_test,
)
from node.filter.sql92_tokens import SHOWN_CHARS_MAX, Sql92Error

A = property_of("a")
TRUTHS: list[Value] = [True, False, None]


def value_of(expression: Expression, **properties: str) -> object:
    return expression.evaluate(properties.get)


def maybe(expression: Expression) -> Expression:
    return equality(expression, decimal("1"))


@pytest.mark.parametrize("left", TRUTHS)
@pytest.mark.parametrize("right", TRUTHS)
def test_and_or_and_not_are_three_valued(left: Value, right: Value) -> None:
    constant: dict[Value, Expression] = {True: TRUE, False: FALSE, None: NULL}
    operands = constant[left], constant[right]
    values = {left, right}
    conjoined = False if False in values else None if None in values else True
    disjoined = True if True in values else None if None in values else False
    assert value_of(conjunction(*operands)) is conjoined
    assert value_of(disjunction(*operands)) is disjoined
    assert value_of(negation(constant[left])) is (None if left is None else not left)


def test_what_comes_after_the_decision_is_not_looked_at() -> None:
    fails = relation(">", A, decimal("1"))
    with pytest.raises(EvaluationError):
        value_of(fails, a="x")
    assert value_of(disjunction(TRUE, fails), a="x") is True
    assert value_of(conjunction(FALSE, fails), a="x") is False
    with pytest.raises(EvaluationError):
        value_of(disjunction(fails, TRUE), a="x")


def test_a_long_chain_is_one_part_and_needs_no_deep_stack() -> None:
    chain = maybe(A)
    for _ in range(300):
        chain = disjunction(chain, maybe(A))
    assert chain.depth == 3
    assert value_of(chain, a="2") is False
    assert value_of(conjunction(chain, TRUE), a="1") is True


def test_there_is_an_end_to_depth_and_to_length() -> None:
    deep = A
    for _ in range(DEPTH_MAX - 1):
        deep = is_null(deep)
    assert value_of(deep) is False
    with pytest.raises(Sql92Error, match=f"deeper than {DEPTH_MAX} levels"):
        is_null(deep)
    chain = TRUE
    with pytest.raises(Sql92Error, match=f"more than {TERMS_MAX} parts"):
        for _ in range(TERMS_MAX):
            chain = conjunction(chain, is_null(A))


def test_a_bare_property_is_never_true() -> None:
    bare = as_boolean(A)
    assert value_of(bare) is None
    assert value_of(bare, a="true") is False
    assert as_boolean(TRUE) is TRUE
    with pytest.raises(Sql92Error, match=r"boolean value: 1$"):
        as_boolean(decimal("1"))


def test_null_equals_only_null() -> None:
    b = property_of("b")
    assert value_of(equality(A, b)) is True
    assert value_of(equality(A, b), b="1") is None
    assert value_of(equality(A, b), a="1") is False
    assert value_of(is_null(A), a="") is False
    assert value_of(is_null(A)) is True
    for operand in (NULL, TRUE):
        with pytest.raises(Sql92Error, match="cannot be compared"):
            equality(operand, decimal("1"))
    assert value_of(equality(decimal("1"), TRUE)) is False


def test_only_numbers_are_put_in_order() -> None:
    b = property_of("b")
    assert value_of(relation(">", A, b), a="1e3", b="999") is True
    assert value_of(relation("<=", A, decimal("5")), a="5") is True
    assert value_of(relation("<", A, decimal("5")), a="5") is False
    assert value_of(relation(">=", A, decimal("5"))) is None
    assert value_of(relation(">=", decimal("5"), A)) is None
    for operand in (TRUE, NULL, text_constant("x"), is_null(A)):
        with pytest.raises(Sql92Error, match="cannot be compared"):
            relation(">", A, operand)


def test_between_includes_both_ends_and_wants_them_in_order() -> None:
    low, high = decimal("1"), decimal("5")
    inside, outside = between(A, low, high), not_between(A, low, high)
    found = [(value_of(inside, a=each), value_of(outside, a=each)) for each in "0156"]
    assert found == [(False, True), (True, False), (True, False), (False, True)]
    with pytest.raises(Sql92Error, match=r"left value\(5\) must less than or equal to right value"):
        between(A, high, low)
    with pytest.raises(Sql92Error, match="can not be null"):
        between(A, NULL, high)
    with pytest.raises(Sql92Error, match=r"left value\(true\) must"):
        between(A, TRUE, high)
    with pytest.raises(Sql92Error, match="not an integer"):
        between(A, text_constant("x"), high)


def test_in_is_for_properties_and_texts() -> None:
    among, others = (membership(A, ["x", "y"], wanted=wanted) for wanted in (True, False))
    assert (value_of(among), value_of(among, a="y"), value_of(among, a="z")) == (None, True, False)
    assert (value_of(others), value_of(others, a="y")) == (None, False)
    assert among.text == "a IN ( x, y )"
    with pytest.raises(Sql92Error, match="Expected a property for In expression, got: 'x'"):
        membership(text_constant("x"), ["x"], wanted=True)


@pytest.mark.parametrize(
    ("operator", "search"), [("CONTAINS", "bc"), ("STARTSWITH", "ab"), ("ENDSWITH", "cd")]
)
def test_parts_of_text_are_two_valued(operator: str, search: str) -> None:
    wanted, unwanted = (text_test(operator, A, search, wanted=each) for each in (True, False))
    assert (value_of(wanted, a="abcd"), value_of(unwanted, a="abcd")) == (True, False)
    assert (value_of(wanted, a="x"), value_of(unwanted, a="x")) == (False, True)
    assert (value_of(wanted), value_of(unwanted)) == (False, False)
    fails = relation(">", A, decimal("1"))
    assert value_of(text_test(operator, fails, "", wanted=True), a="x") is False


def test_minus_is_for_numbers() -> None:
    assert value_of(minus(decimal("5"))) == -5
    assert type(value_of(minus(decimal("3000000000")))) is Long
    assert value_of(minus(A), a="5") is None
    assert value_of(minus(TRUE)) is None
    assert value_of(minus(NULL)) is None


def test_numbers_have_the_ranges_of_java() -> None:
    assert type(decimal("2147483647").value) is int
    assert type(decimal("2147483648").value) is Long
    assert decimal("12L").value == 12
    assert floating_point("5.").text == "5.0"
    for image in ("9223372036854775808", "9" * 5000):
        with pytest.raises(Sql92Error, match="NumberFormatException: For input string"):
            decimal(image)
    with pytest.raises(Sql92Error, match=r"0\.0 is less than 4\.9E-324"):
        floating_point("0.0")
    with pytest.raises(Sql92Error, match="1E400 is greater than"):
        floating_point("1E400")


def test_a_long_text_is_shown_in_part() -> None:
    assert len(text_constant("x" * 5000).text) == SHOWN_CHARS_MAX + 3
