"""What producers do, as flows with the arguments that users give, and the operations of both kinds.

What a `Producer` sends singly is not among them: its tasks share requests (`Producer.send`).
"""

from collections.abc import Callable, Iterable, Sequence

from tandem.client.ack import Ack
from tandem.client.errors import ClientError
from tandem.client.faces import operation
from tandem.client.flow import Flow
from tandem.client.hooks import SendHooks
from tandem.client.results import SendResult
from tandem.client.send_flow import Sender
from tandem.client.sending import SendOptions
from tandem.client.tracing import TraceSender
from tandem.wire.message import Message


class Sends:
    """Sends for one producer. Flows only."""

    def __init__(self, sender: Sender, hooks: SendHooks, traces: TraceSender | None = None) -> None:
        """Send with `sender`, between `hooks`.

        Args:
            sender: has the rules.
            hooks: what is called around sends.
            traces: what is sent along, where no task does that.
        """
        self._sender = sender
        self._hooks = hooks
        self._traces = traces

    def _send_traces(self) -> Flow[None]:
        if self._traces is not None and self._traces.is_due:
            yield from self._traces.flush()

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
        if not self._hooks:
            return self._sender.send(message, options)
        return self._between_hooks([message], lambda given: self._sender.send(given[0], options))

    def _between_hooks(
        self,
        messages: Sequence[Message],
        send: Callable[[Sequence[Message]], Flow[SendResult]],
    ) -> Flow[SendResult]:
        messages, ended = self._hooks.sending(messages)
        try:
            result = yield from send(messages)
        except BaseException as error:
            ended([error])
            raise
        ended([result])
        yield from self._send_traces()
        return result

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
            ArgumentError: no message, several topics, or too many bytes.
        """
        options = SendOptions(queue_id, wait_store_msg_ok, ack)
        if not self._hooks:
            return self._sender.send_batch(messages, options)
        return self._between_hooks(messages, lambda given: self._sender.send_batch(given, options))

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
            ArgumentError: a message cannot be sent as it is. Those before it may have been.
        """
        options = SendOptions(queue_id, wait_store_msg_ok, ack)
        if not self._hooks:
            return self._sender.send_many(messages, options, outcomes)
        return self._many_between_hooks(list(messages), options, outcomes)

    def _many_between_hooks(
        self,
        messages: Sequence[Message],
        options: SendOptions,
        outcomes: dict[int, SendResult | ClientError] | None,
    ) -> Flow[list[SendResult | ClientError]]:
        found = {} if outcomes is None else outcomes
        messages, ended = self._hooks.sending(messages)
        try:
            results = yield from self._sender.send_many(messages, options, found)
        except BaseException as error:
            ended([found.get(index, error) for index in range(len(messages))])
            raise
        ended(results)
        yield from self._send_traces()
        return results


class SendOperations:
    """What both kinds of producers do alike."""

    send_batch = operation(Sends.send_batch)
    send_many = operation(Sends.send_many)
