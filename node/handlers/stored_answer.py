"""The answer to a put whose message is in the log: as a command, and at once as a frame.

Every message costs one. A frame is written from a template: its header is the same but for five
fields, and encoding it field by field takes four times as long.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from node.handlers.send_properties import unique_key_of
from node.remoting.dispatcher import Answer
from store import PutMessageResult
from tandem.wire.message import Host
from tandem.wire.message_properties import REGION
from tandem.wire.remoting_command import (
    FRAME_HEAD,
    PROTOCOL_VERSION,
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    decode_frame_parts,
    encode_frame,
)
from tandem.wire.request_headers import SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_JSON: Final = SerializeType.JSON
_MSGPACK: Final = SerializeType.MSGPACK
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_pack_head: Final = FRAME_HEAD.pack

_HEAD: Final = f'{{"code":{_SUCCESS},"extFields":{{"msgId":"'
_QUEUE_ID: Final = '","queueId":"'
_QUEUE_OFFSET: Final = '","queueOffset":"'
_UNIQUE_KEY: Final = '","transactionId":"'
_END: Final = (
    f'","MSG_REGION":"{REGION}","TRACE_ON":"true"}},"flag":{RESPONSE_FLAG},"language":"PYTHON",'
    '"opaque":'
)
_LAST: Final = f',"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
_TYPE_WORD: Final = int(_JSON) << 24


class RunAnswers(msgspec.Struct, frozen=True):
    """Answers of a run: `frames`, which say that all is well, and where each of them ends."""

    frames: bytes
    frame_ends: list[int]
    record_ends: list[int]

    def ends_of(self, counts: list[int]) -> list[int]:
        """Return where each ends of pieces of this many answers."""
        ends = self.frame_ends
        if len(counts) == len(ends):
            return ends  # each is one
        return [ends[done - 1] for done in accumulate(counts)]

    def single(self) -> list[tuple[int, bytes]]:
        """Return end offset and answer of each."""
        starts = [0, *self.frame_ends]
        return [
            (record_end, self.frames[start:end])
            for record_end, start, end in zip(
                self.record_ends, starts, self.frame_ends, strict=False
            )
        ]


def stored_response(
    command: RemotingCommand, queue_id: int, properties: str, result: PutMessageResult
) -> RemotingCommand:
    """The answer to a put that is in the log. Our own client needs only the first three fields."""
    if command.serialize_type is _MSGPACK:
        ext = SendMessageResponseHeader(result.msg_id, queue_id, result.queue_offset)
    else:
        ext = SendMessageResponseHeader(
            result.msg_id,
            queue_id,
            result.queue_offset,
            unique_key_of(properties),
            None,
            REGION,
            "true",
        )
    return RemotingCommand(
        _SUCCESS,
        command.opaque,
        RESPONSE_FLAG,
        None,
        ext,
        serialize_type=command.serialize_type,
    )


def stored_frame(
    command: RemotingCommand, queue_id: int, properties: str, result: PutMessageResult
) -> bytes:
    """The frame of `stored_response`."""
    key = unique_key_of(properties)
    # Other characters of a key may have to be escaped in JSON.
    if command.serialize_type is not _JSON or key is None or not (key.isalnum() and key.isascii()):
        return encode_frame(stored_response(command, queue_id, properties, result))
    header = (
        f"{_HEAD}{result.msg_id}{_QUEUE_ID}{queue_id}{_QUEUE_OFFSET}{result.queue_offset}"
        f"{_UNIQUE_KEY}{key}{_END}{command.opaque}{_LAST}"
    ).encode("ascii")
    size = len(header)
    return _pack_head(4 + size, _TYPE_WORD | size) + header


def answer_parts(store_host: Host) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return what all answers have in common, in JSON and in MSGPACK, as `SendRuns` takes it."""
    host = store_host.packed.hex().upper()
    parts = (f"{_HEAD}{host}", _QUEUE_ID, _QUEUE_OFFSET, _UNIQUE_KEY, _END, _LAST)
    return tuple(part.encode("ascii") for part in parts), _packed_parts(host)


def _packed_parts(host: str) -> tuple[bytes, ...]:
    """Take an answer apart at its numbers, each of which is one byte in it."""
    offset = "-" * 16
    ext = SendMessageResponseHeader(host + offset, 1, 2)
    answer = RemotingCommand(
        _SUCCESS, 3, RESPONSE_FLAG, ext=ext, serialize_type=SerializeType.MSGPACK
    )
    header = encode_frame(answer)[FRAME_HEAD.size :]
    before, rest = header.split(offset.encode())
    queue_id, last = rest.split(b"\x01")
    queue_offset = last.removesuffix(b"\x02")
    head = encode_frame(msgspec.structs.replace(answer, opaque=4))[FRAME_HEAD.size :]
    opaque_at = next(at for at, byte in enumerate(head) if byte != header[at])
    return header[:opaque_at], before[opaque_at + 1 :], queue_id, queue_offset


def encoded(answer: Answer) -> bytes:
    """The frame of an answer, which it may be already."""
    return answer if isinstance(answer, bytes) else encode_frame(answer)


def with_outcome(answer: Answer, code: int, remark: str) -> RemotingCommand:
    """The same answer with another code, and in words why."""
    if isinstance(answer, bytes):
        answer = decode_frame_parts(answer[4], answer[FRAME_HEAD.size :], b"")
    return msgspec.structs.replace(answer, code=code, remark=remark)
