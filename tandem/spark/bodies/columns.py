"""The columns `value` and `bodyError`, made of what a reader yields; only where they are asked for.

    value       the body as a struct; null if it is none
    bodyError   why it is none; null if it is one

No row is dropped, and no query ends because of a body. Rows that stand for damage have neither.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from tandem.spark.bodies.schemas import Bodies, bodies_of
from tandem.wire.message import COMPRESSED_FLAG
from tandem.wire.untrusted import UnreadableError

VALUE: Final = "value"
BODY_ERROR: Final = "bodyError"

BODY_BYTES_MAX: Final = 4 << 20
"""As brokers take by default. What is compressed can be 64 MiB, and sent in 64 KB."""

_COMPRESSED: Final = "the body is compressed: read with decompress=true, if it can be undone"

_MADE_OF: Final = ("topic", "sysFlag", "body")
_UNFIT: Final = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
"""What Arrow says of a value that its type cannot hold, such as too many digits."""

Rows = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def types_of(option: str | None) -> dict[str, pa.DataType]:
    """Return the columns that the option `bodySchema` adds."""
    return {} if option is None else {VALUE: bodies_of(option).fields, BODY_ERROR: pa.string()}


def with_bodies(read: Rows, names: Sequence[str], option: str | None) -> Iterator[pa.RecordBatch]:
    """Yield what `read` yields for the columns called `names`, the two made here included."""
    if option is None or not {VALUE, BODY_ERROR}.intersection(names):
        yield from read(names)
        return
    others = [name for name in names if name not in (VALUE, BODY_ERROR)]
    needed = [*others, *(name for name in _MADE_OF if name not in others)]
    bodies = bodies_of(option)
    for batch in itertools.chain.from_iterable(map(_parts, read(needed))):
        made = dict(zip((VALUE, BODY_ERROR), _decoded(batch, bodies), strict=True))
        arrays = [made[name] if name in made else batch.column(name) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, list(names))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch: values of Python take two hundred times as much memory as some bodies."""
    import pyarrow.compute as pc  # noqa: PLC0415 - takes a tenth of a second

    sizes = pc.fill_null(pc.binary_length(batch.column("body")), 0).to_pylist()
    start, held = 0, 0
    for row, size in enumerate(sizes):
        if held and held + min(size, BODY_BYTES_MAX) > BODY_BYTES_MAX:
            yield batch.slice(start, row - start)
            start, held = row, 0
        held += min(size, BODY_BYTES_MAX)
    yield batch.slice(start)


def _decoded(batch: pa.RecordBatch, bodies: Bodies) -> tuple[pa.Array, pa.Array]:
    values: list[Any] = []
    errors: list[str | None] = []
    of_rows = (batch.column(name).to_pylist() for name in _MADE_OF)
    for topic, sys_flag, body in zip(*of_rows, strict=True):
        value, why = _value(topic, sys_flag, body, bodies)
        values.append(value)
        errors.append(why)
    try:
        found = pa.array(values, bodies.fields)
    except _UNFIT:
        found = _one_by_one(values, errors, bodies.fields)
    return found, pa.array(errors, pa.string())


def _value(
    topic: str | None, sys_flag: int | None, body: bytes | None, bodies: Bodies
) -> tuple[Any, str | None]:
    if topic is None:  # damage
        return None, None
    of_topic = bodies.of(topic)
    if of_topic is None:
        return None, f"no schema of bodySchema is that of topic {topic}"
    if (sys_flag or 0) & COMPRESSED_FLAG:
        return None, _COMPRESSED
    if not body or len(body) > BODY_BYTES_MAX:
        too_large = f"the body has more than {BODY_BYTES_MAX} bytes, too many for a value"
        return None, too_large if body else "the body is empty"
    try:
        return of_topic.read(body), None
    except UnreadableError as error:
        return None, f"the body is no {of_topic.form} of this schema: {error}"


def _one_by_one(
    values: list[Any], errors: list[str | None], fields: pa.StructType
) -> pa.StructArray:
    """Do without values that the types cannot hold, and say so in their rows."""
    for row, value in enumerate(values):
        try:
            pa.array([value], fields)
        except _UNFIT as error:
            values[row] = None
            errors[row] = f"a value of the body does not fit: {error}"
    return pa.array(values, fields)
