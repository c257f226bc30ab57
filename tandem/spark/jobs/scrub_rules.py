"""What scrubbing does to one message: properties and JSON fields dropped, or hashed with a salt.

A field is named by the names on the way to it, `customer.email`; where there is a list, every one
of its elements is meant. A hash is HMAC-SHA256 of the value under the salt, as 64 hex digits: equal
values have equal hashes, so tables can still be joined.

The body of a message whose fields are to be scrubbed is written anew, with each name once. It
stays as it is, byte for byte, only where no field is named at all.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tandem.spark.jobs.settings import NotJson
from tandem.wire.compression import decompress
from tandem.wire.message import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, INNER_BATCH_FLAG
from tandem.wire.untrusted import UnreadableError, decode_json

LEFTOVER_CHARACTERS_MIN: Final = 6
"""A shorter value is found in any body by chance."""


class ScrubRules(msgspec.Struct, frozen=True):
    """What is dropped and hashed."""

    drop_properties: frozenset[str] = frozenset()
    hash_properties: frozenset[str] = frozenset()
    drop_fields: tuple[str, ...] = ()
    hash_fields: tuple[str, ...] = ()
    not_json: NotJson = NotJson.FAIL
    salt: bytes = b""

    @property
    def digest(self) -> str:
        """Tells rules apart, and says nothing about the salt."""
        named = msgspec.structs.replace(self, salt=b"")
        data = msgspec.json.encode(named, order="deterministic")
        return hmac.new(self.salt, data, hashlib.sha256).hexdigest()


class ScrubError(Exception):
    """A message cannot be scrubbed; the text says why."""


class ScrubbedMessage(msgspec.Struct, frozen=True):
    """What is left of a message. `values` are those that must not be in it any more."""

    body: bytes
    sys_flag: int
    properties: dict[str, str]
    values: frozenset[str]


def scrub(
    body: bytes, sys_flag: int, properties: Mapping[str, str], rules: ScrubRules
) -> ScrubbedMessage | None:
    """Return a message without what the rules name; None if it is to be dropped as a whole.

    Raises:
        ScrubError: fields are named, and the body is no JSON or cannot be read.
    """
    values: set[str] = set()
    kept = {}
    for name, value in properties.items():
        if name not in rules.drop_properties and name not in rules.hash_properties:
            kept[name] = value
            continue
        values.add(value)
        if name in rules.hash_properties:
            kept[name] = hashed(value, rules.salt)
    if not rules.drop_fields and not rules.hash_fields:
        return ScrubbedMessage(body, sys_flag, kept, frozenset(values))
    plain = _plain_body(body, sys_flag)
    sys_flag &= ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)
    try:
        document: Any = decode_json(plain, object)
    except UnreadableError as error:
        if rules.not_json is NotJson.DROP:
            return None
        if rules.not_json is NotJson.FAIL:
            raise ScrubError(
                "its body is no JSON, so its fields cannot be scrubbed; say what becomes of such"
                " messages with not_json: keep or drop"
            ) from error
        return ScrubbedMessage(plain, sys_flag, kept, frozenset(values))
    values |= _scrub_fields(document, rules)
    return ScrubbedMessage(msgspec.json.encode(document), sys_flag, kept, frozenset(values))


def leftovers(message: ScrubbedMessage) -> list[str]:
    """Return where a value that was scrubbed is still to be found in the message."""
    found = []
    text = message.body.decode("utf-8", "replace")
    for value in sorted(message.values):
        if len(value) < LEFTOVER_CHARACTERS_MIN:
            continue
        if value in text or msgspec.json.encode(value).decode()[1:-1] in text:
            found.append("its body")
        found += [f"property {name}" for name, kept in message.properties.items() if value in kept]
    return found


def hashed(value: str, salt: bytes) -> str:
    """Return the HMAC-SHA256 of a value, as 64 hex digits."""
    return hmac.new(salt, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _plain_body(body: bytes, sys_flag: int) -> bytes:
    if sys_flag & INNER_BATCH_FLAG:
        raise ScrubError("it is a batch in one record, whose fields cannot be scrubbed")
    return decompress(body, sys_flag) if sys_flag & COMPRESSED_FLAG else body


def _owners(document: Any, path: list[str]) -> Iterable[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Yield the objects that have the last name of a path."""
    if isinstance(document, list):
        for element in document:
            yield from _owners(element, path)
    elif isinstance(document, dict) and path[0] in document:
        if len(path) == 1:
            yield document
        else:
            yield from _owners(document[path[0]], path[1:])


def _scrub_fields(document: Any, rules: ScrubRules) -> set[str]:  # noqa: ANN401 - JSON
    values = set[str]()
    for path in rules.drop_fields:
        values |= _drop(document, path.split("."))
    for path in rules.hash_fields:
        values |= _hash(document, path.split("."), rules.salt)
    return values


def _drop(document: Any, path: list[str]) -> set[str]:  # noqa: ANN401 - JSON
    values = set[str]()
    for owner in list(_owners(document, path)):
        values |= set(_texts(owner.pop(path[-1])))
    return values


def _hash(document: Any, path: list[str], salt: bytes) -> set[str]:  # noqa: ANN401 - JSON
    values = set[str]()
    for owner in list(_owners(document, path)):
        value = owner[path[-1]]
        if value is None:
            continue
        values |= set(_texts(value))
        owner[path[-1]] = hashed(_text(value), salt)
    return values


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return what is hashed: a text as it is, the rest as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _texts(value: Any) -> Iterable[str]:  # noqa: ANN401 - JSON
    """Yield the values inside of a value."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield _text(value)
