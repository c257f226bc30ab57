"""A remoting command and its frame.

One frame, big-endian:

    offset  bytes  content
    0       4      total: 4 + header + body; does not count itself
    4       1      encoding of the header: 0 JSON, 1 ROCKETMQ, 77 MSGPACK
    5       3      header length H
    8       H      header
    8 + H   ...    body, may be empty

The three headers carry the same facts:

JSON      an object `{"code":..,"extFields":{..},"flag":..,"language":..,"opaque":..,"remark":..,
          "serializeTypeCurrentRPC":"JSON","version":..}`; every value inside `extFields` is text.
ROCKETMQ  code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark 4 + n | ext fields 4 + n,
          where one ext field is key 2 + n | value 4 + n.
MSGPACK   the array `[code, language code, version, opaque, flag, remark or nil, ext map or nil]`,
          whose ext values keep their type. Only TandemMQ speaks it; no RocketMQ does.

The header's fields are decoded in two steps: the frame gives the code, and only the handler of
that code knows the type of the ext fields (`RemotingCommand.decode_header`).

Source: RocketMQ 5.3.3, RemotingCommand, RocketMQSerializable, RemotingSerializable, LanguageCode.
"""

import enum
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Final, TypeVar

import msgspec

from tandem.wire.errors import ArgumentError, MalformedFrameError
from tandem.wire.untrusted import UnreadableError, convert, json_decoder, msgpack_decoder

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

PROTOCOL_VERSION: Final = 479
"""The ordinal of RocketMQ 5.3.3 (MQVersion). A push consumer wants at least 232 from a broker."""

FRAME_HEAD: Final = struct.Struct(">II")
"""Total, then the encoding in the top byte of the header length."""

_FIXED_BINARY: Final = struct.Struct(">hBhiii")
"""Code to remark length of the ROCKETMQ header."""

LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)
_LANGUAGE_CODES: Final = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER_LANGUAGE: Final = _LANGUAGE_CODES["OTHER"]
_OUR_LANGUAGE: Final = _LANGUAGE_CODES["PYTHON"]

_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">i")

_FIELD_IN_MESSAGE: Final = re.compile(r"required field `([^`]+)`|at `\$\.([^`.\[]+)")

assert _FIXED_BINARY.size == 17
assert FRAME_HEAD.size == 8

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)


class SerializeType(enum.IntEnum):
    """How the header of a frame is encoded. A peer answers in the encoding it was asked in."""

    JSON = 0
    ROCKETMQ = 1
    MSGPACK = 77
    """`M`. Ours alone: half the bytes and half the time of JSON."""


_Scalar = str | int | float | bool | None
_FIELDS_JSON: Final = json_decoder(dict[str, _Scalar])
_FIELDS_MSGPACK: Final = msgpack_decoder(dict[str, _Scalar])

Ext = msgspec.Struct | dict[str, str] | msgspec.Raw | None


class RemotingCommand(msgspec.Struct, frozen=True, gc=False):
    """One request or response.

    `ext` is a header record of `tandem.wire.request_headers` or a plain dict on the way out; on the
    way in it is still encoded, and `decode_header` or `ext_fields` reads it.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: Ext = None
    body: bytes = b""
    version: int = PROTOCOL_VERSION
    language: str = "PYTHON"
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """True if this answers the request with the same opaque."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """True if the sender wants no answer, not even an error."""
        return bool(self.flag & ONEWAY_FLAG)

    def decode_header(self, header_type: type[HeaderT]) -> HeaderT:
        """Return the ext fields as a `header_type`. Text is converted to what the field declares.

        Raises:
            MalformedFrameError: a field is missing or does not parse; `field` and `code` say
                which. Answer with an error, the connection is sound.
        """
        ext = self.ext
        try:
            if isinstance(ext, msgspec.Raw):
                is_msgpack = self.serialize_type is SerializeType.MSGPACK
                decoder_of = _msgpack_decoder if is_msgpack else _json_decoder
                header: HeaderT = decoder_of(header_type)(ext)
                return header
            if isinstance(ext, header_type):
                return ext
            return convert(self.ext_fields(), header_type, strict=False)
        except UnreadableError as error:
            return self._decode_as_text(header_type, error)

    def _decode_as_text(self, header_type: type[HeaderT], first_error: Exception) -> HeaderT:
        # The Node client sends numbers and booleans where the record declares text.
        try:
            return convert(self.ext_fields(), header_type, strict=False)
        except UnreadableError as error:
            match = _FIELD_IN_MESSAGE.search(str(error))
            raise MalformedFrameError(
                f"ext fields of code {self.code}: {error}",
                code=self.code,
                field=match and (match.group(1) or match.group(2)),
            ) from first_error

    def ext_fields(self) -> dict[str, str]:
        """Return all ext fields as text, those without a value left out.

        Raises:
            MalformedFrameError: they are not one flat map.
        """
        ext = self.ext
        if ext is None:
            return {}
        if isinstance(ext, msgspec.Struct):
            values: dict[str, _Scalar] = msgspec.to_builtins(ext)
        elif isinstance(ext, dict):
            values = dict(ext)
        else:
            values = self._decode_raw_fields(ext)
        return {name: _text(value) for name, value in values.items() if value is not None}

    def _decode_raw_fields(self, ext: msgspec.Raw) -> dict[str, _Scalar]:
        decode = _FIELDS_MSGPACK if self.serialize_type is SerializeType.MSGPACK else _FIELDS_JSON
        try:
            fields: dict[str, _Scalar] = decode(ext)
        except UnreadableError as error:
            raise MalformedFrameError(
                f"ext fields of code {self.code}: {error}", code=self.code
            ) from error
        return fields


class _JsonHeader(msgspec.Struct, gc=False):
    """As it leaves: keys in the order fastjson writes them, UNSET ones left out."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


class _JsonHeaderIn(msgspec.Struct, gc=False):
    """As it arrives, from whatever client."""

    code: Int32
    extFields: msgspec.Raw = msgspec.Raw()  # noqa: N815
    flag: Int32 = 0
    language: str = "OTHER"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


class _MsgpackHeader(msgspec.Struct, array_like=True, gc=False):
    code: int
    language_code: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: msgspec.Struct | dict[str, str] | msgspec.Raw | None


class _MsgpackHeaderIn(msgspec.Struct, array_like=True, gc=False):
    code: Int32
    language_code: Int32
    version: Int32
    opaque: Int32
    flag: Int32
    remark: str | None = None
    ext: msgspec.Raw = msgspec.Raw()


_JSON_ENCODER: Final = msgspec.json.Encoder()
_MSGPACK_ENCODER: Final = msgspec.msgpack.Encoder()
_READ_JSON: Final = json_decoder(_JsonHeaderIn)
_READ_MSGPACK: Final = msgpack_decoder(_MsgpackHeaderIn)

_NO_EXT: Final = (msgspec.Raw(b""), msgspec.Raw(b"null"), msgspec.Raw(b"\xc0"))
_JSON_TYPE_WORD: Final = SerializeType.JSON << 24
_MSGPACK_TYPE_WORD: Final = SerializeType.MSGPACK << 24
_ROCKETMQ_TYPE_WORD: Final = SerializeType.ROCKETMQ << 24


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the frame of `command`, in its own `serialize_type`.

    Raises:
        ValueError: the code or version does not fit the ROCKETMQ header's 16 bits; use JSON.
    """
    return encode_frame_head(command, len(command.body)) + command.body


def encode_frame_head(command: RemotingCommand, body_bytes: int) -> bytes:
    """Return the frame of `command` up to its body of `body_bytes`, which the caller sends.

    Raises:
        ValueError: see `encode_frame`.
    """
    serialize_type = command.serialize_type
    if serialize_type is SerializeType.MSGPACK:
        header = _encode_msgpack(command)
        type_word = _MSGPACK_TYPE_WORD
    elif serialize_type is SerializeType.JSON:
        header = _encode_json(command)
        type_word = _JSON_TYPE_WORD
    else:
        header = _encode_binary(command)
        type_word = _ROCKETMQ_TYPE_WORD
    size = len(header)
    return FRAME_HEAD.pack(4 + size + body_bytes, type_word | size) + header


def encode_msgpack_request(
    code: int, opaque: int, ext: msgspec.Struct | dict[str, str] | None, body: bytes
) -> bytes:
    """Return the frame of a MSGPACK command that has no flag and no remark; the short way."""
    header = _MSGPACK_ENCODER.encode(
        _MsgpackHeader(code, _OUR_LANGUAGE, PROTOCOL_VERSION, opaque, 0, None, ext)
    )
    size = len(header)
    head = FRAME_HEAD.pack(4 + size + len(body), _MSGPACK_TYPE_WORD | size)
    return b"".join((head, header, body))


def decode_frame_parts(serialize_type: int, header: bytes, body: bytes) -> RemotingCommand:
    """Return the command of a frame that is already split into header and body.

    Raises:
        MalformedFrameError: the header does not parse, or its encoding is unknown.
    """
    try:
        if serialize_type == 77:
            return _decode_msgpack(header, body)
        if serialize_type == 0:
            return _decode_json(header, body)
        if serialize_type == 1:
            return _decode_binary(header, body)
    except (UnreadableError, UnicodeDecodeError, struct.error) as error:
        raise MalformedFrameError(f"frame header: {error}") from error
    raise MalformedFrameError(f"frame header: unknown encoding {serialize_type}")


def _encode_msgpack(command: RemotingCommand) -> bytes:
    return _MSGPACK_ENCODER.encode(
        _MsgpackHeader(
            command.code,
            _LANGUAGE_CODES.get(command.language, _OTHER_LANGUAGE),
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext,
        )
    )


def _decode_msgpack(data: bytes, body: bytes) -> RemotingCommand:
    header: _MsgpackHeaderIn = _READ_MSGPACK(data)
    return RemotingCommand(
        header.code,
        header.opaque,
        header.flag,
        header.remark,
        None if header.ext in _NO_EXT else header.ext,
        body,
        header.version,
        _language_name(header.language_code),
        SerializeType.MSGPACK,
    )


def _encode_json(command: RemotingCommand) -> bytes:
    return _JSON_ENCODER.encode(
        _JsonHeader(
            command.code,
            msgspec.UNSET if command.ext is None else text_fields(command),
            command.flag,
            command.language,
            command.opaque,
            msgspec.UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )


def _decode_json(data: bytes, body: bytes) -> RemotingCommand:
    header: _JsonHeaderIn = _READ_JSON(data)
    return RemotingCommand(
        header.code,
        header.opaque,
        header.flag,
        header.remark,
        None if header.extFields in _NO_EXT else header.extFields,
        body,
        header.version,
        header.language,
        SerializeType.JSON,
    )


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    ext = b"".join(
        b"".join((len(k).to_bytes(2, "big"), k, len(v).to_bytes(4, "big"), v))
        for k, v in (
            (name.encode(), value.encode()) for name, value in command.ext_fields().items()
        )
    )
    try:
        fixed = _FIXED_BINARY.pack(
            command.code,
            _LANGUAGE_CODES.get(command.language, _OTHER_LANGUAGE),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise ArgumentError(
            f"code {command.code}, version {command.version}: the ROCKETMQ header has 16 bits for"
            " each; send it with a JSON header",
            *("code", "version"),
        ) from error
    return b"".join((fixed, remark, len(ext).to_bytes(4, "big"), ext))


def _decode_binary(data: bytes, body: bytes) -> RemotingCommand:
    code, language, version, opaque, flag, remark_size = _FIXED_BINARY.unpack_from(data)
    remark, position = _take(data, _FIXED_BINARY.size, remark_size)
    (ext_size,) = _INT.unpack_from(data, position)
    ext, position = _take(data, position + 4, ext_size)
    if position != len(data):
        raise MalformedFrameError(f"frame header: {len(data) - position} bytes too many")
    return RemotingCommand(
        code,
        opaque,
        flag,
        remark.decode() or None,
        _decode_binary_ext(ext) if ext else None,
        body,
        version,
        _language_name(language),
        SerializeType.ROCKETMQ,
    )


def _decode_binary_ext(data: bytes) -> dict[str, str]:
    fields = {}
    position = 0
    while position < len(data):
        (size,) = _SHORT.unpack_from(data, position)
        name, position = _take(data, position + 2, size)
        (size,) = _INT.unpack_from(data, position)
        value, position = _take(data, position + 4, size)
        fields[name.decode()] = value.decode()
    return fields


def _take(data: bytes, start: int, size: int) -> tuple[bytes, int]:
    end = start + size
    if size < 0 or end > len(data):
        raise MalformedFrameError(f"frame header: a part of {size} bytes at byte {start} is cut")
    return data[start:end], end


def _language_name(code: int) -> str:
    return LANGUAGES[code] if 0 <= code < len(LANGUAGES) else "OTHER"


def _text(value: _Scalar) -> str:
    if value.__class__ is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def text_fields(command: RemotingCommand) -> dict[str, str]:
    """Every ext value as text: the Go client's decoder fails on numbers."""
    ext = command.ext
    if not isinstance(ext, msgspec.Struct):
        return command.ext_fields()
    return {
        name: value if value.__class__ is str else _text(value)
        for name, value in zip(
            _wire_names(ext.__class__), msgspec.structs.astuple(ext), strict=True
        )
        if value is not None
    }


@lru_cache(maxsize=256)
def _wire_names(header_type: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(header_type))


@lru_cache(maxsize=256)
def _json_decoder(header_type: type[HeaderT]) -> Callable[[msgspec.Raw], HeaderT]:
    return json_decoder(header_type, strict=False)


@lru_cache(maxsize=256)
def _msgpack_decoder(header_type: type[HeaderT]) -> Callable[[msgspec.Raw], HeaderT]:
    return msgpack_decoder(header_type, strict=False)
