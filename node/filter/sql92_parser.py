"""RocketMQ's grammar of SQL92 expressions, by recursive descent.

    selector    = or                  what follows it is not looked at, but for one token
    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary
                        | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN "(" string { "," string } ")" }
    unary       = "+" unary | "-" unary | NOT unary | primary
    primary     = constant | property | "(" or ")"

NOT binds tightest: `NOT a = 1` is `(NOT a) = 1`, which is never true.

Written by hand and not with a parser library. What has to be right is how RocketMQ's own parser
errs: it stops where the expression could end, reads one token further and no more, and names
what it had expected there. That is what recursive descent does by itself, and what the tables of a
library would have to be bent to.

Source: RocketMQ 5.3.3, SelectorParser.jj and ParseException.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from node.filter.sql92_expressions import (
    DEPTH_MAX,
    FALSE,
    NULL,
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
    too_deep,
)
from node.filter.sql92_tokens import (
    DECIMAL,
    EOF,
    FLOATING_POINT,
    ID,
    IMAGES,
    STRING,
    Sql92Error,
    Token,
    Tokens,
    escaped,
)

EXPRESSION_CHARS_MAX: Final = 65_536
"""Ours: RocketMQ takes any."""

_RELATIONS: Final = (">", ">=", "<", "<=")
_TEXT_TESTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_AFTER_NOT: Final = ("BETWEEN", "IN", *_TEXT_TESTS)
_CONSTANTS: Final[dict[str, Expression]] = {"TRUE": TRUE, "FALSE": FALSE, "NULL": NULL}
_PRIMARY: Final = ("NOT", *_CONSTANTS, DECIMAL, FLOATING_POINT, STRING, ID, "(", "-")


class SyntaxFaultError(Sql92Error):
    """A token that cannot be where it is."""


def parse(text: str) -> Expression:
    """Return the Boolean that a text begins with.

    Raises:
        Sql92Error: there is none; the text is what RocketMQ says.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        raise Sql92Error(
            f"an expression of {len(text)} characters, the most allowed are {EXPRESSION_CHARS_MAX}"
        )
    return as_boolean(_Parser(text).disjunction())


class _Parser:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._ahead: Token | None = None
        self._expected: set[str] = set()
        """What could have been where the next token is, as far as that was asked."""
        self._depth = 0
        self._is_after_plus = False

    # -- tokens ----------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        if self._ahead is None:
            self._ahead = self._tokens.take()
        return self._ahead

    def _next_is(self, *kinds: str) -> bool:
        if self._token.kind in kinds:
            return True
        self._expected.update(kinds)
        return False

    def _take(self, *kinds: str) -> Token:
        """Read a token of one of these kinds.

        Raises:
            SyntaxFaultError: it is another one.
        """
        if not self._next_is(*kinds):
            raise self._fault(self._token, self._expected)
        token = self._token
        self._ahead = None
        self._expected.clear()
        return token

    def _taken(self, *kinds: str) -> str:
        """Read a token if it is of one of these kinds; "" if it is not."""
        return self._take(*kinds).kind if self._next_is(*kinds) else ""

    def _fault(self, token: Token, expected: Iterable[str]) -> SyntaxFaultError:
        line, column = self._tokens.place(token.start)
        found = EOF if token.kind == EOF else f' {IMAGES[token.kind]} "{escaped(token.image)} "'
        among = set(expected)
        wanted = [f"{IMAGES[kind]} ...\n    " for kind in _in_order(among)]
        return SyntaxFaultError(
            f'org.apache.rocketmq.filter.parser.ParseException: Encountered "{found}" at line'
            f" {line}, column {column}.\nWas expecting{'' if len(wanted) == 1 else ' one of'}:\n"
            f"    {''.join(wanted)}"
        )

    # -- the grammar -----------------------------------------------------------------------------

    def disjunction(self) -> Expression:
        """Read what OR joins."""
        left = self._conjunction()
        while self._taken("OR"):
            right = self._conjunction()
            left = disjunction(as_boolean(left), as_boolean(right))
        return left

    def _conjunction(self) -> Expression:
        left = self._equality()
        while self._taken("AND"):
            right = self._equality()
            left = conjunction(as_boolean(left), as_boolean(right))
        return left

    def _equality(self) -> Expression:
        left = self._comparison()
        while operator := self._taken("IS", "=", "<>"):
            if operator == "IS":
                is_not = bool(self._taken("NOT"))
                self._take("NULL")
                left = negation(is_null(left)) if is_not else is_null(left)
            else:
                equal = equality(left, self._comparison())
                left = equal if operator == "=" else negation(equal)
        return left

    def _comparison(self) -> Expression:
        left = self._unary()
        while self._next_is("NOT", *_AFTER_NOT, *_RELATIONS):
            word = self._token
            if not self._taken("NOT"):
                left = self._compared(left, wanted=True)
            elif self._next_is(*_AFTER_NOT):
                left = self._compared(left, wanted=False)
            else:
                raise self._fault(word, (*_AFTER_NOT, *_RELATIONS))
        return left

    def _compared(self, left: Expression, *, wanted: bool) -> Expression:
        """Read an operator that may have NOT before it, and the rest."""
        operator = self._take(*_AFTER_NOT, *_RELATIONS).kind
        if operator == "BETWEEN":
            low = self._unary()
            self._take("AND")
            return (between if wanted else not_between)(left, low, self._unary())
        if operator == "IN":
            return membership(left, self._strings(), wanted=wanted)
        if operator in _TEXT_TESTS:
            return text_test(operator, left, self._string(), wanted=wanted)
        return relation(operator, left, self._unary())

    def _strings(self) -> list[str]:
        self._take("(")
        texts = [self._string()]
        while self._taken(","):
            texts.append(self._string())
        self._take(")")
        return texts

    def _string(self) -> str:
        return self._take(STRING).image[1:-1].replace("''", "'")

    def _unary(self) -> Expression:
        """A plus sign is one only before an expression that is whole; else it is the fault."""
        token = self._token
        if token.kind == "+":
            return self._after_plus(self._take("+"))
        if self._next_is("-"):
            self._take("-")
            return minus(self._nested(self._unary))
        if self._next_is("NOT"):
            self._take("NOT")
            return negation(as_boolean(self._nested(self._unary)))
        return self._primary()

    def _after_plus(self, plus: Token) -> Expression:
        """The first of several that hold one another is the fault."""
        is_first, self._is_after_plus = not self._is_after_plus, True
        try:
            inner = self._nested(self._unary)
        except SyntaxFaultError:
            if not is_first:
                raise
            raise self._fault(plus, _PRIMARY) from None
        self._is_after_plus = not is_first
        return inner

    def _primary(self) -> Expression:
        token = self._take("+", *_PRIMARY)
        if token.kind in _CONSTANTS:
            return _CONSTANTS[token.kind]
        if token.kind == "(":
            inner = self._nested(self.disjunction)
            self._take(")")
            return inner
        return _ATOMS[token.kind](token.image)

    def _nested(self, read: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise too_deep()
        inner = read()
        self._depth -= 1
        return inner


def _text_atom(image: str) -> Expression:
    return text_constant(image[1:-1].replace("''", "'"))


_ATOMS: Final[dict[str, Callable[[str], Expression]]] = {
    DECIMAL: decimal,
    FLOATING_POINT: floating_point,
    STRING: _text_atom,
    ID: property_of,
}


def _in_order(kinds: set[str]) -> list[str]:
    """As messages list them: the plus sign, which is looked ahead for, comes last."""
    order = [kind for kind in IMAGES if kind in kinds and kind != "+"]
    return order + [kind for kind in kinds if kind == "+"]
