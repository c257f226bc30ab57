"""A message of a transaction: it is put aside until its producer commits it.

Source: RocketMQ 5.3.3, SendMessageProcessor, TransactionalMessageServiceImpl.asyncPrepareMessage.
"""

from __future__ import annotations

from node.errors import RequestError
from store import MessageStore, PutMessage, PutMessageResult
from store.delayed.timer_request import is_timer_request
from store.transaction.half_message import half_message
from tandem.wire.response_code import ResponseCode


class SendHalf:
    """Puts halves, unless `rejects` says that this broker takes none."""

    def __init__(self, store: MessageStore, *, rejects: bool) -> None:
        self._store = store
        self._rejects = rejects

    def put(self, message: PutMessage) -> PutMessageResult:
        """Put the half of a message. Its offsets are what the producer names later.

        Raises:
            RequestError: This broker takes no transactions (NO_PERMISSION), or the message has a
                time of its own (MESSAGE_ILLEGAL).
        """
        if self._rejects:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "the broker sending transaction message is forbidden (reject_transaction_message)",
            )
        if is_timer_request(message):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message of a transaction cannot have a time of its own (TIMER_DELAY_MS and the"
                " like); use a delay level (DELAY), which counts from the commit on",
            )
        return self._store.puts.put_message(half_message(message), hooks=False)
