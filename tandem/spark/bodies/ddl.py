"""Schemas as Spark writes them, `order long, tags array<string>`, read without a JVM.

Processes that plan and read have none, and Spark's own parser is in the JVM. Names, types and
backquotes are those of Spark SQL; `NOT NULL` and comments are not taken, as any field of a body may
be absent.

Source: Spark 4.3, SqlBaseParser.g4, rules colTypeList and dataType.
"""

import re
from typing import Final

import pyarrow as pa

from tandem.spark.bodies.schema_error import BodySchemaError

TIMESTAMP: Final = pa.timestamp("us", "UTC")

DECIMAL_DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 32
"""Types in types: more than anybody has, and less than Python's stack."""

_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = ("decimal", "dec", "numeric")
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|(\w+)|([<>(),:]))")


def parse_ddl(text: str) -> pa.StructType:
    """Return the fields that `text` names.

    Raises:
        BodySchemaError: it is no list of fields, or has a type that bodies are not read as.
    """
    parser = _Parser(text)
    fields = parser.fields("")
    if parser.token() is not None:
        raise parser.unexpected("a comma")
    return struct_of(fields)


def struct_of(fields: list[tuple[str, pa.DataType]]) -> pa.StructType:
    """Return a struct. Names that differ in case alone are one name to Spark.

    Raises:
        BodySchemaError: a name is there twice.
    """
    seen: set[str] = set()
    for name, _ in fields:
        if name.lower() in seen:
            raise BodySchemaError(f"field {name} is there twice", name)
        seen.add(name.lower())
    return pa.struct(fields)


class _Parser:
    """Reads tokens from left to right; `token()` is the next one, None at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def token(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def unexpected(self, wanted: str) -> BodySchemaError:
        found = "the end" if self.token() is None else repr(self.token())
        return BodySchemaError(f"expected {wanted}, found {found}")

    def fields(self, end: str) -> list[tuple[str, pa.DataType]]:
        """Read `name type, name type` up to `end`, or to what is no comma."""
        found = []
        while self.token() is not None and self.token() != end:
            name = self._name()
            if self.token() == ":":
                self._at += 1
            found.append((name, self._kind(name)))
            if self.token() != ",":
                break
            self._at += 1
            if self.token() is None or self.token() == end:
                raise self.unexpected("another field")
        if not found:
            raise self.unexpected("a field such as `order long`")
        return found

    def _name(self) -> str:
        token = self.token()
        if token is None or token in "<>(),:":
            raise self.unexpected("the name of a field")
        self._at += 1
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _take(self, wanted: str) -> None:
        if self.token() != wanted:
            raise self.unexpected(repr(wanted))
        self._at += 1

    def _kind(self, field: str) -> pa.DataType:
        token = self.token()
        if token is None or token in "<>(),:":
            raise self.unexpected(f"the type of {field}")
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BodySchemaError(f"the type of {field} is nested too deeply", field)
        try:
            return self._kind_called(token.lower(), field)
        finally:
            self._depth -= 1

    def _kind_called(self, word: str, field: str) -> pa.DataType:
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _DECIMAL:
            return self._decimal(field)
        if word not in ("array", "map", "struct"):
            raise BodySchemaError(
                f"field {field} has the type {word}, which bodies are not read as; known are"
                f" {', '.join(_PLAIN)}, decimal, array, map and struct",
                field,
            )
        self._take("<")
        if word == "struct":
            kind: pa.DataType = struct_of(self.fields(">"))
        elif word == "array":
            kind = pa.list_(self._kind(field))
        else:
            if self._kind(field) != pa.string():
                raise BodySchemaError(f"the keys of the map {field} have to be strings", field)
            self._take(",")
            kind = pa.map_(pa.string(), self._kind(field))
        self._take(">")
        return kind

    def _decimal(self, field: str) -> pa.DataType:
        if self.token() != "(":
            return pa.decimal128(10, 0)  # as Spark
        self._at += 1
        digits, scale = self._number(), 0
        if self.token() == ",":
            self._at += 1
            scale = self._number()
        self._take(")")
        return decimal_of(digits, scale, field)

    def _number(self) -> int:
        token = self.token() or ""
        if not (token.isascii() and token.isdecimal() and len(token) < 4):
            raise self.unexpected("a number of digits")
        self._at += 1
        return int(token)


def decimal_of(digits: int, scale: int, field: str) -> pa.DataType:
    """Return the type of a decimal.

    Raises:
        BodySchemaError: Spark has no such type.
    """
    if not (0 < digits <= DECIMAL_DIGITS_MAX and 0 <= scale <= digits):
        raise BodySchemaError(
            f"field {field} is a decimal of {digits} digits, {scale} of them after the point: at"
            f" most {DECIMAL_DIGITS_MAX}, and at least 1",
            field,
        )
    return pa.decimal128(digits, scale)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise BodySchemaError(f"{text[at:].strip()[:20]!r} is no name, type or bracket")
        found.append(match[0].strip())
        at = match.end()
    return found
