r"""How a message is printed: its body, a JSON object, or a template of the user.

    %t topic      %B broker         %p queue (partition)   %o offset
    %k keys       %g tag            %v body                %h properties
    %T store time %b time of birth  %i message id          %s bytes of the body
    %n line end   %% percent        \n \t \r \\ as elsewhere

A field may have a word in braces: `%v{hex}`, `%v{base64}`, `%h{color}` (one property), `%T{%H:%M}`
(strftime), `%T{ms}` (milliseconds since 1970). A template that does not end with `%n`, `\n` or `\0`
gets a line end.

Whatever senders chose has nothing in it that moves a terminal, but the body where it goes to a file
or a pipe.
"""

import base64
import datetime as dt
import re
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt

FIELDS: Final = "tBpokgvhTbisn%"

_PART: Final = re.compile(
    r"%(?:(?P<field>.)(?:\{(?P<word>(?:[^{}]|\{[^{}]*\})*)\})?)?|\\(?P<escape>.?)", re.DOTALL
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}


class BodyForm(StrEnum):
    """What is printed of a body that is not UTF-8."""

    TEXT = "text"
    """As it is; on a terminal and in JSON in a form that these can hold."""
    HEX = "hex"
    BASE64 = "base64"


class TemplateError(ValueError):
    """A template has something in it that means nothing; the text says what, and what may be."""


class Found(msgspec.Struct, frozen=True):
    """A message, and the broker it was read from."""

    message: "MessageExt"
    broker_name: str


class BodyWriter(msgspec.Struct, frozen=True):
    """How bodies are written. `is_raw`: where they go, every byte is allowed."""

    form: BodyForm
    is_raw: bool

    def __call__(self, body: bytes) -> bytes:
        """Return what is written of a body."""
        if self.form is not BodyForm.TEXT and not _is_utf8(body):
            return encoded(body, self.form)
        if self.is_raw:
            return body
        return plain(body.decode(errors="backslashreplace")).encode()


Piece = Callable[[Found], bytes]


def compiled_template(text: str, write_body: BodyWriter) -> Piece:
    """Return what makes bytes of a message, with a line end if the template has none at its end.

    Raises:
        TemplateError: The template has a field that there is not.
    """
    pieces: list[Piece] = []
    at = 0
    for found in _PART.finditer(text):
        if literal := text[at : found.start()]:
            pieces.append(_constant(literal))
        pieces.append(_piece(found, write_body))
        at = found.end()
    if literal := text[at:]:
        pieces.append(_constant(literal))
    if not text.endswith(("%n", "\\n", "\\0", "\n")):
        pieces.append(_constant("\n"))
    return lambda message: b"".join([piece(message) for piece in pieces])


def as_record(found: Found, form: BodyForm = BodyForm.TEXT) -> dict[str, Any]:
    """Return a message as JSON can hold it, and as `tandem produce --input-format jsonl` reads it.

    `body` is text. A body that is not UTF-8 is `body_base64`, or `body_hex` if that was asked for.
    """
    message = found.message
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        name = BodyForm.HEX if form is BodyForm.HEX else BodyForm.BASE64
        body = {f"body_{name.value}": encoded(message.body, name).decode()}
    return {
        "topic": message.topic,
        "broker": found.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "msg_id": message.msg_id,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "keys": message.keys.split(),
        "tags": message.tags,
        "properties": message.properties,
        **body,
    }


def encoded(body: bytes, form: BodyForm) -> bytes:
    """Return a body in hexadecimal digits, or in base64."""
    return body.hex().encode() if form is BodyForm.HEX else base64.b64encode(body)


def local_time(milliseconds: int) -> str:
    """Return a time for people, in the time zone of this machine."""
    try:
        moment = dt.datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # a sender may say anything
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _constant(text: str) -> Piece:
    data = text.encode(errors="surrogateescape")
    return lambda _: data


def _piece(found: re.Match[str], write_body: BodyWriter) -> Piece:
    escape = found["escape"]
    if escape is not None:
        if escape not in _ESCAPES:
            raise TemplateError(rf"\{escape} means nothing; there are \n \t \r \0 \\")
        return _constant(_ESCAPES[escape])
    field, word = found["field"], found["word"]
    if field is None or field not in FIELDS:
        raise TemplateError(
            f"%{field or ''} is no field; there are {' '.join(f'%{each}' for each in FIELDS)}"
        )
    if word is not None and field not in "vhTb":
        raise TemplateError(f"%{field} has no word in braces; %v, %h, %T and %b may have one")
    if field == "v":
        return _body(word, write_body)
    if field in "Tb":
        return _moment(field, word)
    if word is not None:
        return lambda each: _safe(each.message.properties.get(word, ""))
    return _PLAIN_FIELDS[field]


def _body(word: str | None, write_body: BodyWriter) -> Piece:
    if word is None:
        return lambda found: write_body(found.message.body)
    if word not in ("hex", "base64"):
        raise TemplateError(f"%v{{{word}}} is no form of a body; there are %v{{hex}}, %v{{base64}}")
    form = BodyForm(word)
    return lambda found: encoded(found.message.body, form)


def _moment(field: str, word: str | None) -> Piece:
    def milliseconds(found: Found) -> int:
        message = found.message
        return message.store_timestamp_ms if field == "T" else message.born_timestamp_ms

    if word is None:
        return lambda found: local_time(milliseconds(found)).encode()
    if word == "ms":
        return lambda found: str(milliseconds(found)).encode()

    def formatted(found: Found) -> bytes:
        try:
            moment = dt.datetime.fromtimestamp(milliseconds(found) / 1000).astimezone()
            return moment.strftime(word).encode()
        except (ValueError, OverflowError, OSError):
            return str(milliseconds(found)).encode()

    return formatted


def _safe(text: str) -> bytes:
    return plain(text).encode()


def _properties(found: Found) -> bytes:
    items = found.message.properties.items()
    return _safe(", ".join(f"{name}={value}" for name, value in items))


_PLAIN_FIELDS: Final[dict[str, Piece]] = {
    "t": lambda found: _safe(found.message.topic),
    "B": lambda found: _safe(found.broker_name),
    "p": lambda found: str(found.message.queue_id).encode(),
    "o": lambda found: str(found.message.queue_offset).encode(),
    "k": lambda found: _safe(found.message.keys),
    "g": lambda found: _safe(found.message.tags),
    "h": _properties,
    "i": lambda found: _safe(found.message.msg_id),
    "s": lambda found: str(len(found.message.body)).encode(),
    "n": lambda _: b"\n",
    "%": lambda _: b"%",
}
