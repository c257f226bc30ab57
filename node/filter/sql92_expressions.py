"""What an SQL92 expression is made of, and what each part evaluates to.

Three-valued: a missing property is null, and so is most of what is made of it. The operators for
parts of text are two-valued, and say FALSE of a missing property. An expression that is neither a
Boolean nor a property cannot be where a Boolean is needed; a bare property is never TRUE.

Every part is a closure over its operands. Chains of AND and OR are one part each, whatever their
length; how deep the others nest is bounded, and how many there are, because a consumer may
send any text and every message is put to it.

Source: RocketMQ 5.3.3, the classes of org.apache.rocketmq.filter.expression.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from node.filter.java_values import (
    EvaluationError,
    Long,
    Value,
    compare,
    double_text,
    double_value,
)
from node.filter.sql92_tokens import SHOWN_CHARS_MAX, Sql92Error
from tandem.wire.java_numbers import INTEGER_MAX, LONG_MAX

Lookup: TypeAlias = "Callable[[str], str | None]"
"""The value of a property, by name; None if the message has none."""

Evaluate: TypeAlias = "Callable[[Lookup], Value]"

DEPTH_MAX: Final = 64
"""Parts within parts. Java runs out of stack somewhere near a thousand."""

TERMS_MAX: Final = 1_024
"""Parts of one expression; a list of IN counts once."""

DOUBLE_MIN: Final = 5e-324


class Kind(enum.Enum):
    """What a part may be used for."""

    PROPERTY = enum.auto()
    CONSTANT = enum.auto()
    BOOLEAN_CONSTANT = enum.auto()
    """TRUE, FALSE and NULL: constants, and Booleans as well."""
    BOOLEAN = enum.auto()
    NUMBER = enum.auto()
    """What a minus sign makes."""


class Expression(msgspec.Struct, frozen=True):
    """One part with all that is in it."""

    kind: Kind
    evaluate: Evaluate
    text: str
    """As RocketMQ shows it in messages, cut where it is long."""
    value: Value = None
    """Of a constant."""
    depth: int = 1
    terms: int = 1
    operands: tuple[Expression, ...] = ()
    """Of AND and OR, so that a longer chain can be made of it."""
    operator: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether its value is known without a message."""
        return self.kind in (Kind.CONSTANT, Kind.BOOLEAN_CONSTANT)

    @property
    def is_boolean(self) -> bool:
        """Whether it can be where a Boolean is needed."""
        return self.kind in (Kind.BOOLEAN, Kind.BOOLEAN_CONSTANT)


def _made(
    kind: Kind, evaluate: Evaluate, text: str, of: tuple[Expression, ...], operator: str = ""
) -> Expression:
    """Put a part together of others.

    Raises:
        Sql92Error: it is too much for one expression.
    """
    depth = 1 + max(each.depth for each in of)
    terms = 1 + sum(each.terms for each in of)
    if depth > DEPTH_MAX:
        raise too_deep()
    if terms > TERMS_MAX:
        raise Sql92Error(f"an expression of more than {TERMS_MAX} parts; shorten it, or use IN")
    operands = of if operator else ()
    return Expression(kind, evaluate, _cut(text), None, depth, terms, operands, operator)


def too_deep() -> Sql92Error:
    """What is said of an expression that nests too deep."""
    return Sql92Error(f"an expression that nests deeper than {DEPTH_MAX} levels")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _runtime_error(text: str) -> Sql92Error:
    return Sql92Error(f"java.lang.RuntimeException: {text}")


# -- what stands for itself ------------------------------------------------------------------------


def property_of(name: str) -> Expression:
    """A property of the message."""

    def evaluate(lookup: Lookup) -> Value:
        return lookup(name)

    return Expression(Kind.PROPERTY, evaluate, name)


def _constant(kind: Kind, value: Value, text: str) -> Expression:
    def evaluate(lookup: Lookup) -> Value:
        return value

    return Expression(kind, evaluate, _cut(text), value)


NULL: Final = _constant(Kind.BOOLEAN_CONSTANT, None, "NULL")
TRUE: Final = _constant(Kind.BOOLEAN_CONSTANT, True, "TRUE")  # noqa: FBT003 - the value itself
FALSE: Final = _constant(Kind.BOOLEAN_CONSTANT, False, "FALSE")  # noqa: FBT003


def text_constant(value: str) -> Expression:
    """A text in quotes."""
    quoted = value.replace("'", "''")
    return _constant(Kind.CONSTANT, value, f"'{quoted}'")


def decimal(image: str) -> Expression:
    """An Integer, or a Long where that is too small.

    Source: ConstantExpression.createFromDecimal.

    Raises:
        Sql92Error: not even a Long is large enough.
    """
    digits = image.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise Sql92Error(f'java.lang.NumberFormatException: For input string: "{_cut(digits)}"')
    value = int(digits)
    return _constant(Kind.CONSTANT, value if value <= INTEGER_MAX else Long(value), str(value))


def floating_point(image: str) -> Expression:
    """A Double, but zero.

    Source: ConstantExpression.createFloat.

    Raises:
        Sql92Error: it is too large, or too small.
    """
    value = double_value(image)
    if value == float("inf"):
        raise _runtime_error(f"{_cut(image)} is greater than 1.7976931348623157E308")
    if value < DOUBLE_MIN:
        raise _runtime_error(f"{_cut(image)} is less than 4.9E-324")
    return _constant(Kind.CONSTANT, value, double_text(value))


# -- Booleans of Booleans --------------------------------------------------------------------------


def as_boolean(expression: Expression) -> Expression:
    """Take a property for a Boolean, which it never is: FALSE, or null without it.

    Source: SelectorParser.asBooleanExpression, UnaryExpression.createBooleanCast.

    Raises:
        Sql92Error: it is a number or a text.
    """
    if expression.is_boolean:
        return expression
    if expression.kind is not Kind.PROPERTY:
        raise Sql92Error(
            "org.apache.rocketmq.filter.parser.ParseException: Expression will not result in a"
            f" boolean value: {expression.text}"
        )
    inner = expression.evaluate

    def evaluate(lookup: Lookup) -> Value:
        return None if inner(lookup) is None else False

    return _made(Kind.BOOLEAN, evaluate, expression.text, (expression,))


def negation(operand: Expression) -> Expression:
    """NOT of a Boolean: null stays null. Source: UnaryExpression.createNOT."""
    inner = operand.evaluate

    def evaluate(lookup: Lookup) -> Value:
        value = inner(lookup)
        return None if value is None else not value

    return _made(Kind.BOOLEAN, evaluate, f"(NOT {operand.text})", (operand,))


def conjunction(left: Expression, right: Expression) -> Expression:
    """`left AND right`. Source: LogicExpression.createAND."""
    return _chain("&&", left, right, decides=False)


def disjunction(left: Expression, right: Expression) -> Expression:
    """`left OR right`. Source: LogicExpression.createOR."""
    return _chain("||", left, right, decides=True)


def _chain(operator: str, left: Expression, right: Expression, *, decides: bool) -> Expression:
    """The first operand that decides is the last one that is looked at."""
    operands = (*(left.operands if left.operator == operator else (left,)), right)
    parts = tuple(operand.evaluate for operand in operands)

    def evaluate(lookup: Lookup) -> Value:
        result: Value = not decides
        for part in parts:
            value = part(lookup)
            if value is decides:
                return decides
            if value is None:
                result = None
        return result

    return _made(
        Kind.BOOLEAN, evaluate, f"({left.text} {operator} {right.text})", operands, operator
    )


# -- comparisons -----------------------------------------------------------------------------------


def equality(left: Expression, right: Expression) -> Expression:
    """`left = right`. Source: ComparisonExpression.createEqual.

    Raises:
        Sql92Error: they cannot be compared.
    """
    for operand in (left, right):
        if operand.is_constant and operand.value is None:
            raise _runtime_error(f"'{operand.text}' cannot be compared.")
    if left.kind is Kind.BOOLEAN_CONSTANT and right.kind is Kind.CONSTANT:
        raise _runtime_error(f"'{left.text}' cannot be compared with '{right.text}'")
    return _equality(left, right)


def is_null(operand: Expression) -> Expression:
    """`operand IS NULL`, which is never null itself. Source: ComparisonExpression.createIsNull."""
    return _equality(operand, NULL)


def _equality(left: Expression, right: Expression) -> Expression:
    """Only what is null on the right alone is simply not equal. Source: doCreateEqual."""
    left_of, right_of = left.evaluate, right.evaluate

    def evaluate(lookup: Lookup) -> Value:
        left_value, right_value = left_of(lookup), right_of(lookup)
        if left_value is None:
            return True if right_value is None else None
        if right_value is None:
            return False
        return compare(left_value, right_value) == 0

    return _made(Kind.BOOLEAN, evaluate, f"({left.text} == {right.text})", (left, right))


_ORDERED: Final[dict[str, tuple[int, ...]]] = {">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}
"""What comparing gives where the operator is true."""


def relation(operator: str, left: Expression, right: Expression) -> Expression:
    """`left > right` and the like, of numbers alone: two properties are both read as Double.

    Source: ComparisonExpression.checkLessThanOperand, evaluate.

    Raises:
        Sql92Error: one of them cannot be a number.
    """
    for operand in (left, right):
        is_number = operand.kind is Kind.CONSTANT and not isinstance(operand.value, str)
        if not (is_number or operand.kind in (Kind.PROPERTY, Kind.NUMBER)):
            raise _runtime_error(f"Value '{operand.text}' cannot be compared.")
    left_of, right_of, wanted = left.evaluate, right.evaluate, _ORDERED[operator]

    def evaluate(lookup: Lookup) -> Value:
        left_value = left_of(lookup)
        if left_value is None:
            return None
        right_value = right_of(lookup)
        if right_value is None:
            return None
        if isinstance(left_value, str) and isinstance(right_value, str):
            left_value, right_value = double_value(left_value), double_value(right_value)
        return compare(left_value, right_value) in wanted

    return _made(Kind.BOOLEAN, evaluate, f"({left.text} {operator} {right.text})", (left, right))


def between(value: Expression, low: Expression, high: Expression) -> Expression:
    """`value BETWEEN low AND high`, both included. Source: ComparisonExpression.createBetween.

    Raises:
        Sql92Error: constants in the wrong order, or what cannot be compared.
    """
    if low.is_constant and high.is_constant:
        if low.value is None or high.value is None:
            raise _runtime_error("Illegal values of between, values can not be null!")
        try:
            is_in_order = compare(high.value, low.value) >= 0
        except EvaluationError as error:
            raise _runtime_error(str(error)) from error
        if not is_in_order:
            raise _runtime_error(
                f"Illegal values of between, left value({_shown(low)}) must less than or equal to"
                f" right value({_shown(high)})"
            )
    return conjunction(relation(">=", value, low), relation("<=", value, high))


def _shown(constant: Expression) -> str:
    """A value as it is, without quotes and in Java's small letters."""
    value = constant.value
    if isinstance(value, bool):
        return str(value).lower()
    return _cut(value) if isinstance(value, str) else constant.text


def not_between(value: Expression, low: Expression, high: Expression) -> Expression:
    """`value NOT BETWEEN low AND high`. Source: ComparisonExpression.createNotBetween."""
    return disjunction(relation("<", value, low), relation(">", value, high))


def membership(operand: Expression, texts: list[str], *, wanted: bool) -> Expression:
    """`operand IN ('a', 'b')`, of a property alone. Source: UnaryExpression.createInExpression.

    Raises:
        Sql92Error: it is not a property.
    """
    if operand.kind is not Kind.PROPERTY:
        raise _runtime_error(f"Expected a property for In expression, got: {operand.text}")
    inner, among = operand.evaluate, frozenset(texts)

    def evaluate(lookup: Lookup) -> Value:
        value = inner(lookup)
        return None if value is None else (value in among) is wanted

    symbol = "IN" if wanted else "NOT IN"
    return _made(
        Kind.BOOLEAN, evaluate, f"{operand.text} {symbol} ( {', '.join(texts)} )", (operand,)
    )


_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def text_test(operator: str, operand: Expression, search: str, *, wanted: bool) -> Expression:
    """`operand CONTAINS 'search'` and the like: FALSE without a text, with or without NOT.

    Source: ComparisonExpression.ContainsExpression and its like.
    """
    inner, test = operand.evaluate, _TEXT_TESTS[operator]

    def evaluate(lookup: Lookup) -> Value:
        value = inner(lookup) if search else None
        if not isinstance(value, str):
            return False
        return test(value, search) is wanted

    symbol = operator if wanted else f"NOT {operator}"
    return _made(Kind.BOOLEAN, evaluate, f"({symbol} {operand.text})", (operand,))


def minus(operand: Expression) -> Expression:
    """`-operand` of a number; null of everything else. Source: UnaryExpression.createNegate."""
    inner = operand.evaluate

    def evaluate(lookup: Lookup) -> Value:
        value = inner(lookup)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return _made(Kind.NUMBER, evaluate, f"(- {operand.text})", (operand,))
