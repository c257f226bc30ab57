"""Hostile HTTP/2 and hostile calls of gRPC, on the ports of clients."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from google.protobuf.descriptor import FieldDescriptor
from hpack import Encoder

from node.grpc.frames import PREFACE, frame, settings_frame
from node.grpc.protocol import messages as pb
from tests.fuzz import hostile
from tests.fuzz.wire import Line
from tests.fuzz.world import FENCED, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from google.protobuf.message import Message

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
METHODS: Final[dict[str, type[Message]]] = {
    "QueryRoute": pb.QueryRouteRequest,
    "Heartbeat": pb.HeartbeatRequest,
    "SendMessage": pb.SendMessageRequest,
    "QueryAssignment": pb.QueryAssignmentRequest,
    "ReceiveMessage": pb.ReceiveMessageRequest,
    "AckMessage": pb.AckMessageRequest,
    "ForwardMessageToDeadLetterQueue": pb.ForwardMessageToDeadLetterQueueRequest,
    "EndTransaction": pb.EndTransactionRequest,
    "NotifyClientTermination": pb.NotifyClientTerminationRequest,
    "Telemetry": pb.TelemetryCommand,
    "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest,
    "RecallMessage": pb.RecallMessageRequest,
}
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
GOAWAY_KIND: Final = b"\x07\x00\x00\x00\x00\x00"
MARK: Final = b"\x00\x00\x08\x06\x01\x00\x00\x00\x00hostile!"
"""The answer to the last ping of a batch: all before it was handled."""

NAMES: Final = ("Canary", "Orders", "canary", "%RETRY%canary_Canary", "broker-a", FENCED, "0", "")


class GrpcAttacker:
    """Calls whose messages are anything, and frames that no client would send."""

    CALLS: ClassVar = 64
    FLOOD: ClassVar = 5_000

    def __init__(self, world: World) -> None:
        self._targets = []
        for name in world.running_nodes():
            port = int(world.spec.node(name).client_address.rpartition(":")[2])
            self._targets.append(Line((world.address(name), port)))

    def batch(self, chance: Random, number: int) -> int:
        """Calls, or one attack on the connection; return how many frames it was about."""
        line = chance.choice(self._targets)
        line.close(reset=chance.random() < 0.5)
        way = chance.randrange(12)
        data, count = (_calls if way < 6 else _ATTACKS[way - 6])(chance)
        if chance.random() < 0.2:
            data = hostile.broken(chance, data)
        ping = frame(PING, 0, 0, MARK[-8:])
        line.exchange(
            PREFACE + settings_frame({}) + data + ping,
            until=lambda tail: MARK in tail or GOAWAY_KIND in tail,
            ends=chance.random() < 0.1,
        )
        return count


def _calls(chance: Random) -> tuple[bytes, int]:
    encoder, data = Encoder(), b""
    for number in range(GrpcAttacker.CALLS):
        name, kind = chance.choice(list(METHODS.items()))
        stream_id = 2 * number + 1
        data += frame(HEADERS, END_HEADERS, stream_id, _headers(chance, encoder, name))
        message = filled(chance, kind()).SerializeToString()
        if chance.random() < 0.2:
            message = hostile.broken(chance, message)
        size = len(message) if chance.random() < 0.95 else hostile.integer(chance) % 2**32
        body = struct.pack(">BI", chance.random() < 0.02, size) + message
        # A frame has no more than 16 KiB unless the other side says so.
        for at in range(0, len(body), 16_384):
            is_last = at + 16_384 >= len(body) and chance.random() < 0.95
            data += frame(DATA, is_last, stream_id, body[at : at + 16_384])
        if chance.random() < 0.1:
            data += frame(RESET, 0, stream_id, struct.pack(">I", 8))
    return data, 3 * GrpcAttacker.CALLS


def _headers(chance: Random, encoder: Encoder, method: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": SERVICE + method,
        ":authority": "a",
        "content-type": "application/grpc",
        "te": "trailers",
        "x-mq-client-id": f"fuzz-{chance.randrange(3)}",
        "x-mq-language": "JAVA",
        "grpc-timeout": chance.choice(("1S", "10m", "0u", "99999999H", "-1S", "x")),
    }
    if chance.random() < 0.2:
        name = chance.choice([*fields, "authorization", "x-mq-date-time", "X"])
        fields[name] = hostile.text(chance)[:2_000]
    return bytes(encoder.encode(list(fields.items())))


def filled(chance: Random, message: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any message
    """Give some fields of a message values: those that others know, and those that break."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3 or depth > 4:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[_text(chance)] = _text(chance)
        elif field.is_repeated:
            for _ in range(chance.choice((1, 1, 2, 40))):
                if field.message_type is None:
                    getattr(message, field.name).append(_value(chance, field))
                else:
                    filled(chance, getattr(message, field.name).add(), depth + 1)
        elif field.message_type is not None:
            filled(chance, getattr(message, field.name), depth + 1)
        else:
            setattr(message, field.name, _value(chance, field))
    return message


_BITS: Final = {
    FieldDescriptor.TYPE_INT32: 32,
    FieldDescriptor.TYPE_ENUM: 32,
    FieldDescriptor.TYPE_INT64: 64,
}


def _value(chance: Random, field: Any) -> object:  # noqa: ANN401 - of protobuf
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text(chance)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.randbytes(chance.choice((0, 1, 100, 5_000)))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return chance.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
    bits = _BITS[field.type]
    number = chance.choice((1, 2, 10, 1_000, hostile.integer(chance)))
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _text(chance: Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(NAMES)
    if chance.random() < 0.3:  # a handle, more or less
        return " ".join(str(hostile.integer(chance)) for _ in range(chance.randrange(6, 10)))
    return hostile.text(chance)


def _bomb(chance: Random) -> tuple[bytes, int]:
    encoder = Encoder()
    block = _headers(chance, encoder, "Heartbeat") + encoder.encode([("bomb", "x" * 3_900)])
    # The last entry of the table, 4 KB of it, again and again: a byte each.
    block += b"\xbe" * chance.choice((3, 100, 10_000))
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, block), 1


def _rapid_resets(chance: Random) -> tuple[bytes, int]:
    encoder, data = Encoder(), []
    for number in range(GrpcAttacker.FLOOD // 2):
        stream_id = 2 * number + 1
        data.append(
            frame(HEADERS, END_HEADERS, stream_id, _headers(chance, encoder, "SendMessage"))
        )
        # Ours, or one that the node has to make: a window of nothing.
        kind = chance.choice((RESET, WINDOW))
        data.append(frame(kind, 0, stream_id, struct.pack(">I", 8 if kind == RESET else 0)))
    return b"".join(data), len(data)


def _windows(chance: Random) -> tuple[bytes, int]:
    more = chance.choice((0, 1, 2**31 - 1))
    return frame(WINDOW, 0, 0, struct.pack(">I", more)) * 3, 3


def _too_large(chance: Random) -> tuple[bytes, int]:
    head = frame(HEADERS, END_HEADERS, 1, _headers(chance, Encoder(), "SendMessage"))
    size = chance.choice((300_000, 2**24 - 1))
    if chance.random() < 0.5:
        return head + frame(DATA, 0, 1, struct.pack(">BI", 0, 2**32 - 1)), 2
    return head + size.to_bytes(3, "big") + b"\x00\x00\x00\x00\x00\x01" + bytes(70_000), 2


def _flood(chance: Random) -> tuple[bytes, int]:
    head = frame(HEADERS, END_HEADERS, 1, _headers(chance, Encoder(), "Telemetry"))
    idle = chance.choice(
        (
            frame(PING, 0, 0, b"12345678"),
            frame(SETTINGS, 0, 0, b""),
            frame(DATA, 0, 1, b""),
            frame(WINDOW, 0, 1, b"\x00\x00\x00\x01"),
            frame(11, 0, 0, b"unknown"),
        )
    )
    return head + idle * GrpcAttacker.FLOOD, GrpcAttacker.FLOOD


def _continuations(chance: Random) -> tuple[bytes, int]:
    block = _headers(chance, Encoder(), "Heartbeat")
    part = frame(CONTINUATION, 0, 1, chance.choice((b"", b"\x00" * 100)))
    return frame(HEADERS, 0, 1, block) + part * 1_000, 1_000


_ATTACKS: Final[tuple[Callable[[Random], tuple[bytes, int]], ...]] = (
    *(_bomb, _rapid_resets, _windows),
    *(_too_large, _flood, _continuations),
)
