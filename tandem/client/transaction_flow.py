r"""The rules of transactions: the half, its end, and what is answered when the broker asks.

    half sent ---> local transaction ---> commit or rollback, confirmed by the broker
                                     \--> no word arrives: the broker asks any producer of the group

What a producer answers is kept by unique key, newest `DECISIONS_MAX`:

    under way                       unknown: the broker asks again later
    decided, not confirmed yet      the decision
    decided and confirmed           rollback: a half that is asked about now is a second copy, sent
                                    when the first got no answer
    not known, or left as unknown   the user's `transaction_check`; unknown without one

Ending a transaction twice does no harm, so the end is tried again like a send, at the master of its
queue, for as long as a send may take.

Source: RocketMQ 5.3.3, DefaultMQProducerImpl.sendMessageInTransaction and endTransaction.
"""

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tandem.client.ack import Ack
from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    SendInDoubtError,
)
from tandem.client.flow import Call, Flow, Pause
from tandem.client.results import SendResult, SendStatus
from tandem.client.send_flow import Sender
from tandem.client.sending import SendOptions
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message, decode_offset_msg_id
from tandem.wire.message_choices import DELAY_FIELDS
from tandem.wire.message_properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

if TYPE_CHECKING:
    from tandem.wire.remoting_command import RemotingCommand

TransactionState = Literal["commit", "rollback", "unknown"]
"""What became of a local transaction."""

END_CODES: Final[dict[TransactionState, int]] = {"commit": 8, "rollback": 12, "unknown": 0}
"""Source: MessageSysFlag."""

RETRIED: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE.value,
        ResponseCode.SLAVE_NOT_AVAILABLE.value,
        ResponseCode.SYSTEM_BUSY.value,
        ResponseCode.FLUSH_DISK_TIMEOUT.value,
        ResponseCode.FLUSH_SLAVE_TIMEOUT.value,
    }
)
"""Answers to the end of a transaction after which it is said again: it may not be safe yet."""

ATTEMPT_SECONDS: Final = 4.0
DECISIONS_MAX: Final = 10_000

_UNSAFE_HALVES: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


def is_refusal(error: ClientError) -> bool:
    """True if a broker says no to the end of a transaction, and will not say otherwise."""
    return isinstance(error, BrokerError) and error.code not in RETRIED


class Half(msgspec.Struct, frozen=True):
    """A message that nobody sees until it is committed."""

    message: Message
    result: SendResult


class Decisions:
    """What this producer knows of transactions, by unique key."""

    def __init__(self, decisions_max: int = DECISIONS_MAX) -> None:
        self._states: OrderedDict[str, TransactionState] = OrderedDict()
        self._confirmed: set[str] = set()
        self._decisions_max = decisions_max

    def begin(self, unique_key: str) -> None:
        """A local transaction is under way."""
        self._states[unique_key] = "unknown"
        if len(self._states) > self._decisions_max:
            oldest, _ = self._states.popitem(last=False)
            self._confirmed.discard(oldest)

    def decide(self, unique_key: str, state: TransactionState) -> None:
        """It has ended so. Left as unknown: only the user's check can say."""
        if state == "unknown":
            self._states.pop(unique_key, None)
        elif unique_key in self._states:
            self._states[unique_key] = state

    def confirm(self, unique_key: str) -> None:
        """The broker knows its end."""
        if unique_key in self._states:
            self._confirmed.add(unique_key)

    def answer(self, unique_key: str) -> TransactionState | None:
        """Return the answer for the broker, None if this producer knows nothing of it."""
        if unique_key in self._confirmed:
            return "rollback"
        return self._states.get(unique_key)


class TransactionFlows:
    """Sends halves and ends transactions for one producer. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore, sender: Sender, group: str, wait_seconds: float) -> None:
        self._core = core
        self._sender = sender
        self._group = group
        self._wait_seconds = wait_seconds

    def begin(
        self, message: Message, queue_id: int | None = None, ack: Ack | None = None
    ) -> Flow[Half]:
        """Send a message that nobody sees yet, to a broker that knows this producer.

        Raises:
            ClientError: nothing was begun. BrokerError with the code of FLUSH_DISK_TIMEOUT,
                FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE: the half is not safe, so it is rolled
                back.
            ArgumentError: the message cannot be sent as it is.
        """
        if not message.is_for_a_batch:
            text = "the message of a transaction has no delay and no priority"
            raise ArgumentError(text, *DELAY_FIELDS, "priority")
        properties = {
            **message.properties,
            PROPERTY_TRANSACTION_PREPARED: "true",
            PROPERTY_PRODUCER_GROUP: self._group,
        }
        prepared = msgspec.structs.replace(message, properties=properties)
        try:
            result = yield from self._sender.send_half(prepared, SendOptions(queue_id, None, ack))
        except SendInDoubtError as error:
            result = error.result
        half = Half(message, result)
        if result.status is SendStatus.SEND_OK:
            yield from self._core.heartbeat(self._core.strangers)
            return half
        # If nobody confirms it: the broker will ask, and nobody knows of this transaction.
        with contextlib.suppress(ClientError):
            yield from self.end(half, "rollback")
        raise BrokerError(
            _UNSAFE_HALVES[result.status], f"the half is not safe, rolled back: {result.reason}"
        )

    def end(self, half: Half, state: TransactionState) -> Flow[None]:
        """Say what became of a transaction, until the master of its queue confirms it.

        Raises:
            BrokerError: the master refuses: it knows of no such transaction.
            ClientError: no master has confirmed it in time.
        """
        end = self._core.clock() + self._wait_seconds
        refused = False
        tries_count = 0
        while True:
            error = yield from self._try_to_end(half, state, end)
            if error is None:
                return
            if is_refusal(error):
                if refused:
                    raise error
                # Once more: a new master may have been about to learn of it.
                refused = True
            self._core.suspect_route(half.result.queue.topic)
            pause = retry_pause_seconds(tries_count)
            tries_count += 1
            if self._core.clock() + pause >= end:
                raise error
            yield Pause(pause)

    def _try_to_end(
        self, half: Half, state: TransactionState, end: float
    ) -> Flow[ClientError | None]:
        result = half.result
        _, commit_log_offset = decode_offset_msg_id(result.offset_msg_id)
        header = EndTransactionRequestHeader(
            self._group,
            result.queue_offset,
            commit_log_offset,
            END_CODES[state],
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.msg_id,
            topic=result.queue.topic,
            broker_name=result.queue.broker_name,
        )
        try:
            address = yield from self._master(result, end)
            deadline = min(end, self._core.clock() + ATTEMPT_SECONDS)
            answer: RemotingCommand = yield Call(
                address, RequestCode.END_TRANSACTION, header, deadline
            )
        except (ConnectionLostError, RequestTimeoutError, RouteNotFoundError) as error:
            return error
        if answer.code == ResponseCode.SUCCESS:
            return None
        return BrokerError(answer.code, answer.remark or "", address)

    def _master(self, result: SendResult, end: float) -> Flow[str]:
        topic, name = result.queue.topic, result.queue.broker_name
        route = yield from self._core.route(topic, end, for_sends=True)
        address = route.addresses(name).get(MASTER_ID)
        if address is None:
            reason = f"broker {name!r} has no master now"
            raise RouteNotFoundError(topic, RouteCause.NO_MASTER, reason, may_pass=True)
        return address

    def answer(
        self,
        address: str,
        question: CheckTransactionStateRequestHeader,
        unique_key: str,
        state: TransactionState,
    ) -> Flow[bool]:
        """Answer a broker that asked; return whether it took the answer."""
        header = EndTransactionRequestHeader(
            self._group,
            question.tran_state_table_offset,
            question.commit_log_offset,
            END_CODES[state],
            from_transaction_check=True,
            msg_id=unique_key,
            transaction_id=question.transaction_id,
            topic=question.topic,
            broker_name=question.broker_name,
        )
        deadline = self._core.clock() + ATTEMPT_SECONDS
        try:
            answer: RemotingCommand = yield Call(
                address, RequestCode.END_TRANSACTION, header, deadline
            )
        except ClientError:
            # It asks again.
            return False
        return bool(answer.code == ResponseCode.SUCCESS)
