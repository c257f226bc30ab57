"""The words of an SQL92 expression, one at a time, only as far as the parser asks.

What the parser never asks for may be anything: `a LIKE 'x%'` is `a`, and the rest is not looked at.
The longest token counts; among equally long ones a keyword. `--` with nothing but text to the end
of the expression is two minus signs: a comment ends with a line.

Errors are in the words of RocketMQ's generated parser, quirks included: clients show them.

Source: RocketMQ 5.3.3, SelectorParser.jj, SelectorParserTokenManager, SimpleCharStream.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EOF: Final = "<EOF>"
DECIMAL: Final = "<DECIMAL_LITERAL>"
FLOATING_POINT: Final = "<FLOATING_POINT_LITERAL>"
STRING: Final = "<STRING_LITERAL>"
ID: Final = "<ID>"

KEYWORDS: Final = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
)
OPERATORS: Final = ("=", "<>", ">", ">=", "<", "<=", "(", ",", ")", "+", "-")

IMAGES: Final[dict[str, str]] = {
    EOF: EOF,
    **{word: f'"{word}"' for word in KEYWORDS},
    **{kind: kind for kind in (DECIMAL, FLOATING_POINT, STRING, ID)},
    **{sign: f'"{sign}"' for sign in OPERATORS},
}
"""How messages show a kind of token; in RocketMQ's order."""

_KEYWORDS: Final = frozenset(KEYWORDS)

_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*(?s:.*?)\*/)*")
_FLOATING_POINT: Final = re.compile(
    r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
)
_TOKEN: Final = re.compile(
    r"(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<string>'(?:''|[^'])*')"
    r"|(?P<decimal>0|[1-9][0-9]*[lL]?)|(?P<sign><>|>=|<=|[=<>(),+-])"
)
_ESCAPES: Final = {
    "\0": "",
    "\b": r"\b",
    "\t": r"\t",
    "\n": r"\n",
    "\f": r"\f",
    "\r": r"\r",
    '"': r"\"",
    "'": r"\'",
    "\\": r"\\",
}
_PRINTABLE: Final = ("\x20", "\x7e")
_TAB_COLUMNS: Final = 8

SHOWN_CHARS_MAX: Final = 1_000
"""Of a text in messages; RocketMQ shows all of it."""


class Sql92Error(Exception):
    """An expression that cannot be compiled; the text is RocketMQ's."""


class LexicalError(Sql92Error):
    """Characters that begin no token, as far as the parser has looked."""


class Token(NamedTuple):
    """One word; `start` is where its position in messages is."""

    kind: str
    image: str
    start: int


class Tokens:
    """The tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0

    def take(self) -> Token:
        """Return the next token; EOF at the end, as often as asked.

        Raises:
            LexicalError: there is none.
        """
        text = self._text
        start = self._skip()
        if start == len(text):
            return Token(EOF, "", start - 1)
        floating = _FLOATING_POINT.match(text, start)
        found = _TOKEN.match(text, start)
        if floating and (not found or floating.end() > found.end()):
            found, kind = floating, FLOATING_POINT
        elif found:
            kind = _kind(found)
        else:
            raise self._lexical_error(start)
        self._next = found.end()
        return Token(kind, found.group(), start)

    def _skip(self) -> int:
        found = _SKIPPED.match(self._text, self._next)
        return found.end() if found else self._next

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character, from 1; a tab goes to the next column of eight."""
        line, column = (0, 0) if offset < 0 else (1, 0)
        before = ""
        for character in self._text[: offset + 1]:
            if before == "\n" or (before == "\r" and character != "\n"):
                line, column = line + 1, 0
            column += 1
            if character == "\t":
                column = (column - 1) // _TAB_COLUMNS * _TAB_COLUMNS + _TAB_COLUMNS
            before = character
        return line, column

    def _lexical_error(self, start: int) -> LexicalError:
        """Source: TokenMgrError.LexicalError, and the end of SelectorParserTokenManager."""
        text = self._text
        failed = start + self._viable(start)
        seen = text[start : failed + 1]
        if failed < len(text) - 1:
            line, column = self.place(failed)
            found = f'"{escaped(text[failed])}" ({ord(text[failed])}), '
            after = text[start:failed]
        else:
            line, column = self.place(len(text) - 1)
            line, column = (line + 1, 0) if text[-1] in "\r\n" else (line, column + 1)
            found, after = "<EOF> ", seen if len(seen) > 1 else ""
        return LexicalError(
            "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at line"
            f' {line}, column {column}.  Encountered: {found}after : "{escaped(after)}"'
        )

    def _viable(self, start: int) -> int:
        """How many characters from there might have begun a token."""
        text = self._text
        if text[start] == "'" or text.startswith("/*", start):
            return len(text) - start
        return 1 if text[start] in "./" else 0


def _kind(found: re.Match[str]) -> str:
    group, image = found.lastgroup, found.group()
    if group == "word":
        word = image.upper()
        return word if word in _KEYWORDS else ID
    if group == "sign":
        return image
    return STRING if group == "string" else DECIMAL


def escaped(text: str) -> str:
    """Source: ParseException.addEscapes. A long text is shown in part."""
    return "".join(map(_escaped, text[:SHOWN_CHARS_MAX]))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    least, most = _PRINTABLE
    return character if least <= character <= most else f"\\u{ord(character):04x}"
