"""The option `bodySchema`: what bodies are, for all topics that are read or for each of them.

order long, region string                       JSON objects, by a schema as Spark writes it
{"type": "record", "name": …, "fields": […]}    Avro, by its schema
{"orders": "order long", "paid": {"type": …}}   one of both for each topic

What is given for all topics alike begins with no brace, or is a record.
"""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from tandem.spark.bodies.avro_values import avro_decoder
from tandem.spark.bodies.ddl import parse_ddl, struct_of
from tandem.spark.bodies.json_values import Decoder, decoder_of
from tandem.spark.bodies.schema_error import BodySchemaError
from tandem.spark.option_reader import OptionReader
from tandem.wire.untrusted import UnreadableError, decode_json_object

OPTION: Final = "bodySchema"

JSON: Final = "JSON"
AVRO: Final = "Avro"


class TopicBodies(msgspec.Struct, frozen=True):
    """How the bodies of one topic are read. `form` is `JSON` or `Avro`."""

    form: str
    fields: pa.StructType
    read: Decoder


class Bodies(msgspec.Struct, frozen=True):
    """How bodies are read: by topic, or of all topics alike. `fields` are those of all of them."""

    fields: pa.StructType
    by_topic: Mapping[str, TopicBodies]
    of_all: TopicBodies | None = None

    def of(self, topic: str | None) -> TopicBodies | None:
        """Return how bodies of a topic are read; None: nothing says that."""
        return self.of_all or self.by_topic.get(topic or "")


def read_bodies(given: OptionReader, is_read: Callable[[str], bool]) -> str | None:
    """Return the option, checked; None if it is not given, or no schema.

    `is_read` says whether the other options choose a topic. The option stays a text, which travels
    to tasks: `bodies_of` reads it.
    """
    text = given.text(OPTION)
    if text is None:
        return None
    try:
        bodies = bodies_of(text)
    except BodySchemaError as error:
        given.refuse(f"{OPTION}: {error}", OPTION)
        return None
    unread = [topic for topic in bodies.by_topic if not is_read(topic)]
    if unread:
        given.refuse(
            f"{OPTION} has a schema for {', '.join(unread)}, which the options do not choose to"
            " read: is the name right?",
            OPTION,
        )
    return text


def chosen_by(topics: Collection[str] | None, pattern: str | None) -> Callable[[str], bool]:
    """Return what says whether a topic is read; by neither, all are."""

    def is_read(topic: str) -> bool:
        if topics is not None:
            return topic in topics
        return pattern is None or re.fullmatch(pattern, topic) is not None

    return is_read


@functools.lru_cache(maxsize=64)
def bodies_of(text: str) -> Bodies:
    """Return what an option says.

    Raises:
        BodySchemaError: it is none of the three forms, or topics have fields of one name that are
            of two types.
    """
    if not text.lstrip().startswith("{"):
        one = _of_topic(text, "")
        return Bodies(one.fields, {}, one)
    try:
        found = decode_json_object(text)
    except UnreadableError as error:
        raise BodySchemaError(f"it begins with a brace, and is no JSON: {error}") from error
    if found.get("type") == "record" and "fields" in found:
        one = _of_topic(found, "")
        return Bodies(one.fields, {}, one)
    if not found:
        raise BodySchemaError("no topic has a schema: leave the option out")
    by_topic = {topic: _of_topic(each, f"topic {topic}: ") for topic, each in found.items()}
    return Bodies(_all_fields(by_topic), by_topic)


def _of_topic(schema: object, whose: str) -> TopicBodies:
    try:
        if isinstance(schema, str):
            fields = parse_ddl(schema)
            return TopicBodies(JSON, fields, decoder_of(fields))
        if isinstance(schema, dict):
            fields, decode = avro_decoder(schema)
            return TopicBodies(AVRO, fields, decode)
    except BodySchemaError as error:
        raise BodySchemaError(f"{whose}{error}", error.field) from error
    raise BodySchemaError(f"{whose}expected fields such as `order long`, or a schema of Avro")


def _all_fields(by_topic: Mapping[str, TopicBodies]) -> pa.StructType:
    """Return the fields of all topics in the order in which they come first."""
    found: dict[str, tuple[str, pa.DataType, str]] = {}
    for topic, bodies in by_topic.items():
        for field in bodies.fields:
            name, kind, other = found.setdefault(
                field.name.lower(), (field.name, field.type, topic)
            )
            if name != field.name or kind != field.type:
                raise BodySchemaError(
                    f"field {field.name} of topic {topic} and field {name} of topic {other} differ"
                    " in type or in case: read these topics as two tables",
                    field.name,
                )
    return struct_of([(name, kind) for name, kind, _ in found.values()])
