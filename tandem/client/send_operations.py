"""What producers do, as flows with the arguments that users give, and the operations of both kinds.

What a `Producer` sends singly is not among them: its tasks share requests (`Producer.send`).
"""

from collections.abc import Iterable, Sequence

from tandem.client.ack import Ack
from tandem.client.errors import ClientError
from tandem.client.faces import operation
from tandem.client.flow import Flow
from tandem.client.results import SendResult
from tandem.client.send_flow import Sender
from tandem.client.sending import SendOptions
from tandem.wire.message import Message


class Sends:
    """Sends for one producer. Flows only."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
        sharding_key: str = "",
    ) -> Flow[SendResult]:
        """Send one message, and wait for its answer; see `Producer.send`."""
        options = SendOptions(queue_id, wait_store_msg_ok, ack, sharding_key)
        return self._sender.send(message, options)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
    ) -> Flow[SendResult]:
        """Send messages of one topic as one request: all are stored, one after the other, or none.

        `queue_offset` of the result is that of the first message.

        Raises:
            ClientError: see the module's table; it concerns all of them.
            ValueError: no message, several topics, or too many bytes.
        """
        return self._sender.send_batch(messages, SendOptions(queue_id, wait_store_msg_ok, ack))

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
        outcomes: dict[int, SendResult | ClientError] | None = None,
    ) -> Flow[list[SendResult | ClientError]]:
        """Send each message by itself, up to 1,024 at once; return the outcomes in order.

        The fastest way to send single messages from one task: it is woken once for many. If it is
        cancelled, `outcomes` has what was answered until then, by position; of the others nobody
        knows. (A `BlockingProducer` has up to 128 in flight.)

        Raises:
            ValueError: a message cannot be sent as it is. Those before it may have been.
        """
        options = SendOptions(queue_id, wait_store_msg_ok, ack)
        return self._sender.send_many(messages, options, outcomes)


class SendOperations:
    """What both kinds of producers do alike."""

    send_batch = operation(Sends.send_batch)
    send_many = operation(Sends.send_many)
