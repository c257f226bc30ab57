"""The answer to a put whose message is in the log: as a command, and at once as a frame.

Every message costs one. A frame is written from a template: its header is the same but for five
fields, and encoding it field by field takes four times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from node.handlers.send_properties import REGION, unique_key_of
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

if TYPE_CHECKING:
    from node.remoting.dispatcher import Answer
    from store import PutMessageResult

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_JSON: Final = SerializeType.JSON
_MSGPACK: Final = SerializeType.MSGPACK
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_pack_head: Final = FRAME_HEAD.pack

_END: Final = (
    f'","MSG_REGION":"{REGION}","TRACE_ON":"true"}},"flag":{RESPONSE_FLAG},"language":"PYTHON",'
    '"opaque":'
)
_LAST: Final = f',"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
_TYPE_WORD: Final = int(_JSON) << 24


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
    # What else is in a key may have to be escaped in JSON.
    if command.serialize_type is not _JSON or key is None or not (key.isalnum() and key.isascii()):
        return encode_frame(stored_response(command, queue_id, properties, result))
    header = (
        f'{{"code":{_SUCCESS},"extFields":{{"msgId":"{result.msg_id}","queueId":"{queue_id}",'
        f'"queueOffset":"{result.queue_offset}","transactionId":"{key}{_END}{command.opaque}{_LAST}'
    ).encode("ascii")
    size = len(header)
    return _pack_head(4 + size, _TYPE_WORD | size) + header


def encoded(answer: Answer) -> bytes:
    """The frame of an answer, which it may be already."""
    return answer if isinstance(answer, bytes) else encode_frame(answer)


def with_outcome(answer: Answer, code: int, remark: str) -> RemotingCommand:
    """The same answer with another code, and in words why."""
    if isinstance(answer, bytes):
        answer = decode_frame_parts(answer[4], answer[FRAME_HEAD.size :], b"")
    return msgspec.structs.replace(answer, code=code, remark=remark)
