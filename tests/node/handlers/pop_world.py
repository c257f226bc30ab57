"""A broker with messages, and a client that pops them."""

import msgspec

from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_message_offsets, decode_start_offsets
from tandem.wire.receipt_handle import (
    ReceiptHandle,
    TopicMark,
    decode_receipt_handle,
    encode_receipt_handle,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.node.doubles import Broker, Client, handlers_of, request_table
from tests.support.listening import listen

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

HEADER = PopMessageRequestHeader(
    consumer_group="CG",
    topic="T",
    queue_id=-1,
    max_msg_nums=32,
    invisible_time=60_000,
    poll_time=0,
    init_mode=0,
)


def header(**changes: object) -> PopMessageRequestHeader:
    return msgspec.structs.replace(HEADER, **changes)


class PopWorld:
    """A broker and a client of it."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.handlers = handlers_of(self.broker)
        listen(self.broker.store, self.broker.pop.messages_arrived)
        self.client = self.new_client()

    def new_client(self) -> Client:
        return Client(request_table(self.handlers), self.broker.outbox)

    def pop(self, **changes: object) -> RemotingCommand:
        return self.client.call(POP, header(**changes))

    def popped(self, **changes: object) -> list[tuple[bytes, ReceiptHandle]]:
        return handles_in(self.pop(**changes))

    def ack(self, handle: ReceiptHandle, **changes: object) -> RemotingCommand:
        request = AckMessageRequestHeader(
            consumer_group="CG",
            topic=handle.mark.topic("T", "CG"),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=handle.queue_offset,
        )
        return self.client.call(ACK, msgspec.structs.replace(request, **changes))

    def change(
        self, handle: ReceiptHandle, invisible_time: int, **changes: object
    ) -> RemotingCommand:
        request = ChangeInvisibleTimeRequestHeader(
            consumer_group="CG",
            topic=handle.mark.topic("T", "CG"),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=handle.queue_offset,
            invisible_time=invisible_time,
        )
        return self.client.call(CHANGE, msgspec.structs.replace(request, **changes))


def popped(answer: RemotingCommand) -> PopMessageResponseHeader:
    return answer.decode_header(PopMessageResponseHeader)


def messages(answer: RemotingCommand) -> list[MessageExt]:
    return decode_messages(answer.body)


def handles_in(answer: RemotingCommand) -> list[tuple[bytes, ReceiptHandle]]:
    """Return bodies with their handles, made as RocketMQ's client makes them.

    Source: MQClientAPIImpl.processPopResponse.
    """
    ext = popped(answer)
    starts = decode_start_offsets(ext.start_offset_info or "")
    offsets = decode_message_offsets(ext.msg_offset_info or "")
    found = []
    for message in messages(answer):
        if text := message.properties.get("POP_CK"):
            found.append((message.body, decode_receipt_handle(text)))
            continue
        key = PoppedQueue(TopicMark.NORMAL, message.queue_id)
        assert message.queue_offset in offsets[key]
        handle = ReceiptHandle(
            starts[key],
            ext.pop_time,
            ext.invisible_time,
            ext.revive_qid,
            TopicMark.NORMAL,
            "broker-a",
            message.queue_id,
            message.queue_offset,
        )
        found.append((message.body, handle))
    return found
