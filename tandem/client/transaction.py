"""`async with producer.transaction(message)`: a message that is seen if its block ends well.

    async with producer.transaction(Message("orders", b"...")) as transaction:
        await database.commit(...)

See `tandem.client.transaction_flow` for the rules.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Self

import anyio

from tandem.client.ack import Ack
from tandem.client.async_shell import AsyncShell
from tandem.client.broker_request import BrokerRequest
from tandem.client.core import ClientCore
from tandem.client.errors import BrokerError, ClientError, NotOpenError
from tandem.client.hooks import SendHooks, TransactionEnd
from tandem.client.results import SendResult
from tandem.client.transaction_flow import (
    END_CODES,
    Decisions,
    Half,
    TransactionFlows,
    TransactionState,
    is_refusal,
)
from tandem.wire.errors import ArgumentError, WireError
from tandem.wire.message import Message, MessageExt, decode_message
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CheckTransactionStateRequestHeader

logger = logging.getLogger(__name__)

TransactionCheck = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]
"""Says what became of a local transaction, by its message. A plain or an async function."""

CANCELLED_SECONDS: Final = 1.0
"""How long a cancelled block waits for its rollback to be confirmed."""

GREET_SECONDS: Final = 1.0
"""How soon a new master knows this producer, and can ask it."""


class Transaction:
    """One transaction, from `async with` to the end of its block. Made by `Producer.transaction`.

    `result` is the answer to the half, whose `msg_id` the committed message keeps.
    """

    def __init__(
        self,
        transactions: "Transactions",
        message: Message,
        queue_id: int | None,
        ack: Ack | None,
    ) -> None:
        self._transactions = transactions
        self._message = message
        self._queue_id = queue_id
        self._ack = ack
        self._half: Half | None = None
        self._state: TransactionState | None = None
        self.is_confirmed = False
        """True when the broker has confirmed the end. If it is still False after the block, the
        broker has not been reached; it will ask, and this producer knows what to answer."""

    @property
    def result(self) -> SendResult:
        """Return what the broker said to the half."""
        if self._half is None:
            raise NotOpenError('the transaction has not begun; use it with "async with"')
        return self._half.result

    def commit(self) -> None:
        """The message is to be seen, even if the block is left with an exception."""
        self._state = "commit"

    def rollback(self) -> None:
        """The message is to vanish, even if the block ends normally."""
        self._state = "rollback"

    def unknown(self) -> None:
        """The broker is to ask `transaction_check` later."""
        self._state = "unknown"

    async def __aenter__(self) -> Self:
        self._half = await self._transactions.begin(self._message, self._queue_id, self._ack)
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        assert self._half is not None
        default: TransactionState = "commit" if error_type is None else "rollback"
        state = self._state or default
        if error_type is None:
            self.is_confirmed = await self._transactions.end(self._half, state)
            return
        # The exception of the block is what its caller has to see.
        try:
            with anyio.CancelScope(shield=not issubclass(error_type, Exception)):
                with anyio.move_on_after(CANCELLED_SECONDS):
                    self.is_confirmed = await self._transactions.end(self._half, state)
        except BrokerError as error:
            logger.warning("the end of transaction %s: %s", self.result.msg_id, error)


class Transactions:
    """The transactions of one producer, and its answers when brokers ask."""

    def __init__(
        self,
        shell: AsyncShell,
        core: ClientCore,
        flows: TransactionFlows,
        check: TransactionCheck | None,
        hooks: SendHooks,
    ) -> None:
        self._shell = shell
        self._hooks = hooks
        self._core = core
        self._flows = flows
        self._check = check
        self._decisions = Decisions()
        self._greets = False
        core.broker_requests.on(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    def open(self) -> None:
        """Let brokers know this producer early if they may have something to ask."""
        if self._check is not None:
            self.greet()

    def greet(self) -> None:
        """Say hello to every new broker from now on, within a second."""
        if not self._greets:
            self._greets = True
            self._shell.tasks.start_soon(self._greet_for_ever)

    async def _greet_for_ever(self) -> None:
        while True:
            if strangers := self._core.strangers:
                await self._shell.run(self._core.heartbeat(strangers))
            await anyio.sleep(GREET_SECONDS)

    async def begin(self, message: Message, queue_id: int | None, ack: Ack | None) -> Half:
        """Send the half."""
        self.greet()
        [message], ended = self._hooks.sending([message], is_half=True)
        try:
            half = await self._shell.run(self._flows.begin(message, queue_id, ack))
        except BaseException as error:
            ended([error])
            raise
        ended([half.result])
        self._decisions.begin(half.result.msg_id)
        return half

    async def end(self, half: Half, state: TransactionState) -> bool:
        """End a transaction; return whether the broker has confirmed it.

        Raises:
            BrokerError: the broker knows of no such transaction.
        """
        unique_key = half.result.msg_id
        self._decisions.decide(unique_key, state)
        end = TransactionEnd(
            half.message.topic,
            unique_key,
            half.message.tags,
            str(half.message.keys),
            half.result.offset_msg_id,
            state,
        )
        if state == "unknown":
            self._hooks.transaction_ended(end)
            return False
        try:
            await self._shell.run(self._flows.end(half, state))
        except ClientError as error:
            if is_refusal(error):
                raise
            logger.warning(
                "no broker has confirmed the %s of transaction %s; the broker will ask: %s",
                state,
                unique_key,
                error,
            )
            return False
        self._decisions.confirm(unique_key)
        self._hooks.transaction_ended(end)
        return True

    def _asked(self, request: BrokerRequest) -> None:
        try:
            question = request.command.decode_header(CheckTransactionStateRequestHeader)
            message, _ = decode_message(request.command.body)
        except WireError as error:
            logger.warning("broker %s asks what cannot be read: %s", request.address, error)
            return
        self._shell.tasks.start_soon(self._answer, request.address, question, message)

    async def _answer(
        self, address: str, question: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        unique_key = question.transaction_id or message.msg_id
        state = self._decisions.answer(unique_key)
        if state is None:
            state = await self._ask_user(message)
        taken = await self._shell.run(self._flows.answer(address, question, unique_key, state))
        if taken and state != "unknown":
            self._decisions.confirm(unique_key)
            topic = message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
            place = message.offset_msg_id
            self._hooks.transaction_ended(
                TransactionEnd(
                    topic, unique_key, message.tags, message.keys, place, state, from_check=True
                )
            )

    async def _ask_user(self, message: MessageExt) -> TransactionState:
        if self._check is None:
            return "unknown"
        try:
            answer = self._check(message)
            return _checked(await answer if inspect.isawaitable(answer) else answer)
        except Exception:  # the user's code may raise anything; the broker asks again
            logger.exception("transaction_check failed for message %s", message.msg_id)
            return "unknown"


def _checked(said: object) -> TransactionState:
    """Return what a `transaction_check` has returned, which may be anything.

    Raises:
        ArgumentError: it says nothing of a transaction.
    """
    for state in END_CODES:
        if said == state:
            return state
    text = f"transaction_check returned {said!r}; it returns one of {', '.join(END_CODES)}"
    raise ArgumentError(text, "transaction_check")
