"""Avro records as values: schemas of Avro as Arrow types, and a decoder by fastavro.

A body is one record in Avro's binary encoding, with nothing before or after it: neither the header
of a file nor that of a registry.

What is read is not trusted. Items of arrays take a byte at least, by the schema, so that a count of
2^60 ends with the bytes that there are.
"""

import decimal
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from tandem.spark.bodies.avro_unions import union_check
from tandem.spark.bodies.ddl import DEPTH_MAX, TIMESTAMP, decimal_of, struct_of
from tandem.spark.bodies.schema_error import BodySchemaError
from tandem.wire.untrusted import UnreadableError

_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""All others are read as what they are stored as, decimals excepted."""

_WIDER: Final = ({"int32", "int64"}, "long"), ({"float", "double"}, "double")
"""Unions that Spark reads as one type."""

FIELDS_MAX: Final = 10_000
"""Of a record, with those of records in it. A name stands for all that it names, each time: twenty
names, each of a record with two fields of the one before, are a million columns."""

_SHORT_DECIMAL: Final = "tandem-decimal"
_ENUM: Final = "tandem-enum"
_SYMBOLS: Final = "tandemSymbols"
"""A name that schemas have no meaning for: fastavro keeps it."""
_BOOLEAN: Final = "tandem-boolean"
_BOOLEAN_NAME: Final = "tandem_spark_bodies.Boolean"
"""A boolean is read as a fixed byte: to fastavro every byte but 0 is true."""
_DIGITS: Final = decimal.Context(prec=100)
_DECIMAL_BYTES_MAX: Final = 32
"""Twice what 38 digits take. Python's time for a decimal is quadratic: 20 s for 400 KB."""

_UNREADABLE: Final = (
    ArithmeticError,  # decimals, and times that Python has no date for
    EOFError,
    LookupError,  # an index past a union or enum
    TypeError,
    ValueError,  # UnicodeError, too
)
"""What fastavro raises for its input alone."""


def avro_decoder(schema: Mapping[str, Any]) -> tuple[pa.StructType, Callable[[bytes], Any]]:
    """Return the fields of a record, and what reads a body; see `json_values.Decoder`.

    Raises:
        BodySchemaError: fastavro is not installed, the schema is none, or has a type that Spark
            has not.
    """
    try:
        import fastavro  # noqa: PLC0415 - an extra
        import fastavro.read  # noqa: PLC0415
        import fastavro.schema  # noqa: PLC0415
    except ImportError as error:
        raise BodySchemaError(
            "Avro needs fastavro, here and on workers: pip install 'tandem-mq[avro]'"
        ) from error
    try:
        whole = fastavro.parse_schema(dict(schema))
        plain, fields = _Walk().as_read(whole, "")
        parsed = fastavro.parse_schema(plain)
        check_unions = union_check(plain)
    except BodySchemaError:
        raise
    except (
        fastavro.schema.SchemaParseException,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise BodySchemaError(f"this is no schema of Avro: {error}") from error
    if not pa.types.is_struct(fields):
        raise BodySchemaError("the schema of Avro has to be a record")
    fastavro.read.LOGICAL_READERS[f"bytes-{_SHORT_DECIMAL}"] = _decimal
    fastavro.read.LOGICAL_READERS[f"int-{_ENUM}"] = _symbol
    fastavro.read.LOGICAL_READERS[f"fixed-{_BOOLEAN}"] = _boolean
    read = fastavro.schemaless_reader

    def decode(body: bytes) -> Any:  # noqa: ANN401 - a record of the schema
        source = io.BytesIO(body)
        try:
            value = read(source, parsed, None)
            if check_unions is not None:
                check_unions(body)
        except _UNREADABLE as error:
            raise UnreadableError(str(error) or "it ends too early") from error
        if source.tell() != len(body):
            raise UnreadableError(f"{len(body) - source.tell()} bytes follow the record")
        return value

    return fields, decode


class _Known(msgspec.Struct, frozen=True):
    """What a name stands for: the type as it is read, in Arrow, and how much that is."""

    plain: Any
    arrow: pa.DataType
    fields: int
    depth: int


class _Walk:
    """One walk through a parsed schema, whose names are whole and defined where they come first."""

    def __init__(self) -> None:
        self._depth = 0
        self._deepest = 0
        self._fields = 0
        self._named: dict[str, _Known | None] = {}
        """None while the walk is inside of it."""
        self._has_boolean = False

    def as_read(self, schema: Any, field: str) -> tuple[Any, pa.DataType]:  # noqa: ANN401 - JSON
        """Return a schema without the logical types that stay as they are, and its Arrow type."""
        if isinstance(schema, list):
            return self._union(schema, field)
        if isinstance(schema, str):
            if schema in self._named:
                return self._again(schema, field)
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self._named:
            return self.as_read(kind, field)
        name = schema.get("name") if kind in ("record", "enum", "fixed") else None
        if name is not None:
            self._named[name] = None
        deepest, fields = self._deepest, self._fields
        self._deepest = self._depth
        self._enter(1, field)
        plain, arrow = self._defined(schema, kind, field)
        self._depth -= 1
        if name is not None:
            of_it = self._fields - fields, self._deepest - self._depth
            self._named[name] = _Known(name if kind != "enum" else plain, arrow, *of_it)
        self._deepest = max(deepest, self._deepest)
        return plain, arrow

    def _enter(self, depth: int, field: str) -> None:
        self._depth += depth
        self._deepest = max(self._deepest, self._depth)
        if self._depth > DEPTH_MAX:
            raise BodySchemaError(f"the type of {field} is nested too deeply", field)

    def _count(self, fields: int, field: str) -> None:
        self._fields += fields
        if self._fields > FIELDS_MAX:
            raise BodySchemaError(
                f"up to field {field} the schema has more than {FIELDS_MAX} fields, those of a"
                " record counted wherever its name is used",
                field,
            )

    def _again(self, name: str, field: str) -> tuple[Any, pa.DataType]:
        known = self._named[name]
        if known is None:
            raise BodySchemaError(
                f"field {field} is a {name} inside of a {name}, which Spark has no type for", field
            )
        self._enter(known.depth, field)
        self._depth -= known.depth
        self._count(known.fields, field)
        return known.plain, known.arrow

    def _defined(self, schema: Any, kind: str, field: str) -> tuple[Any, pa.DataType]:  # noqa: ANN401
        if kind == "record":
            return self._record(schema, field)
        if kind == "array":
            plain, items = self.as_read(schema["items"], field)
            return {"type": "array", "items": plain}, pa.list_(items)
        if kind == "map":
            plain, values = self.as_read(schema["values"], field)
            return {"type": "map", "values": plain}, pa.map_(pa.string(), values)
        if kind == "enum":
            symbols = [str(each) for each in schema["symbols"]]
            return {"type": "int", "logicalType": _ENUM, _SYMBOLS: symbols}, pa.string()
        if kind not in _PLAIN:
            text = f"field {field} has the type {kind}, which Spark has no type for"
            raise BodySchemaError(text, field)
        if kind == "boolean":
            return self._boolean(), _PLAIN[kind]
        if kind == "fixed" and schema["size"] < 1:
            raise BodySchemaError(f"field {field} has no bytes at all", field)
        return _plain(schema, kind, field)

    def _boolean(self) -> Any:  # noqa: ANN401
        """Return the type that is defined where it comes first, and named after that."""
        if self._has_boolean:
            return _BOOLEAN_NAME
        self._has_boolean = True
        return {"type": "fixed", "name": _BOOLEAN_NAME, "size": 1, "logicalType": _BOOLEAN}

    def _record(self, schema: Any, field: str) -> tuple[Any, pa.DataType]:  # noqa: ANN401
        plain, fields = [], []
        for each in schema["fields"]:
            name = str(each["name"])
            self._count(1, f"{field}.{name}" if field else name)
            kind, arrow = self.as_read(each["type"], f"{field}.{name}" if field else name)
            plain.append({"name": name, "type": kind})
            fields.append((name, arrow))
        if not fields:
            raise BodySchemaError(f"record {schema['name']} has no fields", field)
        whole = {"type": "record", "name": schema["name"], "namespace": "", "fields": plain}
        return whole, struct_of(fields)

    def _union(self, kinds: Sequence[Any], field: str) -> tuple[Any, pa.DataType]:
        """A union with null is a field that may be null."""
        read = [(each, None) if each == "null" else self.as_read(each, field) for each in kinds]
        plain = [each for each, _ in read]
        types = [arrow for _, arrow in read if arrow is not None]
        if len(types) == 1:
            return plain, types[0]
        for narrow, wide in _WIDER:
            if {str(kind) for kind in types} == narrow:
                return plain, _PLAIN[wide]
        raise BodySchemaError(
            f"field {field} is a union of {len(types)} types, which Spark has no type for", field
        )


def _symbol(index: Any, writer: Any, _reader: object = None) -> str:  # noqa: ANN401
    """Read an enum, which is an index. fastavro would count one below 0 from the end."""
    if index < 0:
        raise IndexError(f"symbol {index} of an enum")
    return str(writer[_SYMBOLS][index])


def _boolean(data: Any, _writer: object = None, _reader: object = None) -> bool:  # noqa: ANN401
    """Read a boolean, which is a byte 0 or 1.

    Source: Avro's specification, primitive types in the binary encoding.
    """
    if data not in (b"\0", b"\1"):
        raise ValueError(f"a boolean that is the byte {data[0]}")
    return bool(data[0])


def _decimal(data: Any, writer: Any, _reader: object = None) -> decimal.Decimal:  # noqa: ANN401
    """Read a decimal as fastavro does, up to a size."""
    if len(data) > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(data)} bytes")
    unscaled = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return unscaled.scaleb(-writer.get("scale", 0), _DIGITS)


def _plain(schema: Mapping[str, Any], kind: str, field: str) -> tuple[Any, pa.DataType]:
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        arrow = decimal_of(schema.get("precision", 0), schema.get("scale", 0), field)
        return ({**schema, "logicalType": _SHORT_DECIMAL} if kind == "bytes" else schema), arrow
    if (arrow := _LOGICAL.get((kind, str(logical)))) is not None:
        return schema, arrow
    return {name: value for name, value in schema.items() if name != "logicalType"}, _PLAIN[kind]
