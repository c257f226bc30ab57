"""Sql92Filter: one compiled expression, put to the property bytes of messages.

Only TRUE is a match. null, FALSE and an error, such as text where a number is needed, are none.

A property is looked up by its name, and read once a message; the others are not decoded. Texts that
were compiled lately are kept, those that cannot be compiled as well: consumers send theirs with
every pull.

Source: RocketMQ 5.3.3, SqlFilter, SelectorParser.parse;
ExpressionMessageFilter.isMatchedByCommitLog.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from node.filter.java_values import EvaluationError
from node.filter.sql92_expressions import Expression
from node.filter.sql92_parser import parse
from node.filter.sql92_tokens import Sql92Error
from store.queue.consume_queue_ext import CqExtUnit
from tandem.wire.message_properties import property_value

SQL92: Final = "SQL92"
"""Source: ExpressionType.SQL92."""

COMPILED_MAX: Final = 128
"""Texts that are kept compiled, or as an error. RocketMQ: 100."""


class Sql92Filter:
    """One expression.

    Attributes:
        text: What it was compiled from.
        cost: What one message costs, in terms.
        uses_bit_maps: False: nothing was calculated for a text that nobody has registered.
    """

    __slots__ = ("_evaluate", "cost", "text")
    uses_bit_maps = False

    def __init__(self, text: str, expression: Expression) -> None:
        self.text = text
        self.cost = expression.terms
        self._evaluate = expression.evaluate

    def may_match(self, at: int, unit: CqExtUnit) -> bool:
        """Say that every message may be wanted."""
        return True

    def matches(self, properties: bytes) -> bool:
        """Say whether a message with this property string is wanted."""
        read: dict[str, str | None] = {}

        def lookup(name: str) -> str | None:
            if name in read:
                return read[name]
            found = property_value(properties, name.encode())
            value = read[name] = None if found is None else str(found, "utf-8", "replace")
            return value

        try:
            return self._evaluate(lookup) is True
        except EvaluationError:
            return False


def compile_filter(text: str) -> Sql92Filter:
    """Return the filter of a text.

    Raises:
        Sql92Error: it is none; the error says why in RocketMQ's words.
    """
    found = _compiled(text)
    if isinstance(found, str):
        raise Sql92Error(found)
    return found


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(text: str) -> Sql92Filter | str:
    try:
        return Sql92Filter(text, parse(text))
    except Sql92Error as error:
        return str(error)
