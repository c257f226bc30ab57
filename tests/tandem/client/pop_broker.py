"""A broker that answers pops as a test says, and remembers what was acknowledged."""

import msgspec

from tandem.wire.batch_ack import decode_batch_ack
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import MessageExt, encode_record
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    AckMessageResponseHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import (
    PoppedOffset,
    PoppedQueue,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from tandem.wire.receipt_handle import decode_receipt_handle, mark_of
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import FakeBroker, answer_to, message_ext

POP_MS = 1_700_000_000_000


def record(
    body: bytes, offset: int, *, topic: str = "orders", queue_id: int = 0, **properties: str
) -> MessageExt:
    message = message_ext(
        body, topic=topic, queue_id=queue_id, queue_offset=offset, properties=properties
    )
    return msgspec.structs.replace(message, body_crc=raw_crc32(body) & CRC_MASK)


def pop_answer(
    request: RemotingCommand, *records: MessageExt, counts: dict[int, int] | None = None
) -> RemotingCommand:
    """Answer a pop with these records, or with nothing."""
    offsets: dict[PoppedQueue, list[int]] = {}
    for each in records:
        key = PoppedQueue(mark_of(each.topic), each.queue_id)
        offsets.setdefault(key, []).append(each.queue_offset)
    header = request.decode_header(PopMessageRequestHeader)
    order = {
        PoppedOffset(mark_of(each.topic), each.queue_id, each.queue_offset): count
        for each in records
        if (count := (counts or {}).get(each.queue_offset))
    }
    ext = PopMessageResponseHeader(
        POP_MS,
        header.invisible_time,
        3,
        0,
        encode_start_offsets({key: found[0] for key, found in offsets.items()}),
        encode_message_offsets(offsets),
        encode_order_counts(order) if counts is not None else None,
    )
    code = ResponseCode.SUCCESS if records else ResponseCode.POLLING_TIMEOUT
    return answer_to(request, code, ext, b"".join(map(encode_record, records)))


class PopBroker(FakeBroker):
    """Hands out what is in `waiting`, in order of requests.

    Attributes:
        waiting: What the next requests get, an empty list for nothing.
        acked: Places that were acknowledged: (topic, queue id, offset).
        is_stale: Whether no handle is good.
    """

    def __init__(self, *waiting: list[MessageExt]) -> None:
        super().__init__()
        self.waiting = list(waiting)
        self.acked: list[tuple[str, int, int]] = []
        self.is_stale = False
        self.counts: dict[int, int] | None = None
        self.handlers |= {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def asked(self) -> list[PopMessageRequestHeader]:
        """Return the pops so far."""
        pops = [each for each in self.requests if each.code == RequestCode.POP_MESSAGE]
        return [each.decode_header(PopMessageRequestHeader) for each in pops]

    def _pop(self, request: RemotingCommand) -> RemotingCommand:
        found = self.waiting.pop(0) if self.waiting else []
        return pop_answer(request, *found, counts=self.counts)

    def _ack(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(AckMessageRequestHeader)
        handle = decode_receipt_handle(header.extra_info)
        assert (handle.queue_id, handle.queue_offset) == (header.queue_id, header.offset)
        self.acked.append((header.topic, header.queue_id, header.offset))
        return self._said(request)

    def _said(self, request: RemotingCommand) -> RemotingCommand:
        ext = AckMessageResponseHeader(is_stale=True) if self.is_stale else None
        return answer_to(request, ext=ext)

    def _batch_ack(self, request: RemotingCommand) -> RemotingCommand:
        for ack in decode_batch_ack(request.body).acks:
            self.acked += [(ack.real_topic, ack.queue_id, offset) for offset in ack.offsets()]
        return self._said(request)

    def _change(self, request: RemotingCommand) -> RemotingCommand:
        if self.is_stale:
            return answer_to(request, ResponseCode.NO_MESSAGE)
        header = request.decode_header(ChangeInvisibleTimeRequestHeader)
        ext = ChangeInvisibleTimeResponseHeader(POP_MS + 500, header.invisible_time, 3)
        return answer_to(request, ext=ext)
