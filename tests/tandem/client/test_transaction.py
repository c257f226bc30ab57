"""Transactions of a producer, under trio and under asyncio."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from tandem.client.errors import BrokerError, NotOpenError
from tandem.client.hooks import SendEnded, TransactionEnd
from tandem.client.producer import Producer
from tandem.client.results import SendStatus
from tandem.client.transaction import Transaction, TransactionCheck
from tandem.client.transaction_flow import TransactionState
from tandem.wire.message import Message, MessageExt, encode_record
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    FakeBroker,
    answer_to,
    message_ext,
)

MESSAGE = Message("orders", b"hello")
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class World:
    """A producer and its broker, which notes how transactions end."""

    def __init__(self, producer: Producer, network: EitherNetwork, broker: FakeBroker) -> None:
        self.producer = producer
        self.network = network
        self.broker = broker

    @property
    def ends(self) -> list[int]:
        return [header.commit_or_rollback for header in self._headers()]

    def _headers(self) -> list[EndTransactionRequestHeader]:
        return [
            request.decode_header(EndTransactionRequestHeader)
            for request in self.broker.requests
            if request.code == RequestCode.END_TRANSACTION
        ]

    async def ask(self, unique_key: str) -> int:
        """Ask as a broker does, and return the answer."""
        count = len(self.ends)
        header = CheckTransactionStateRequestHeader("HALF", 1, 1000, transaction_id=unique_key)
        body = encode_record(message_ext(b"half", properties={"UNIQ_KEY": unique_key}))
        command = RemotingCommand(
            RequestCode.CHECK_TRANSACTION_STATE, 1, ONEWAY_FLAG, ext=header, body=body
        )
        await self.network.say(MASTER, command)
        while True:
            # A try of the producer's own may still be on its way.
            for end, said in list(zip(self.ends, self._headers(), strict=True))[count:]:
                if said.from_transaction_check:
                    return end
            await anyio.sleep(0.001)


class Ends:
    """A hook that keeps how transactions ended."""

    def __init__(self) -> None:
        self.seen: list[TransactionEnd] = []

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        assert is_half
        return messages, lambda _: None

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        self.seen.append(end)


@asynccontextmanager
async def world(
    check: TransactionCheck | None = None, hooks: Sequence[Ends] = ()
) -> AsyncIterator[World]:
    broker = FakeBroker()
    broker.handlers[RequestCode.END_TRANSACTION] = answer_to
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER,
            "PG",
            open_stream=network.open_stream,
            send_msg_timeout_ms=1_000,
            transaction_check=check,
            hooks=hooks,
        ) as producer:
            yield World(producer, network, broker)
        tasks.cancel_scope.cancel()


@under_either_loop
async def test_leaving_commits_and_an_exception_rolls_back() -> None:
    async with world() as its:
        async with its.producer.transaction(MESSAGE) as transaction:
            assert its.ends == []
        assert transaction.is_confirmed
        with pytest.raises(LookupError):
            async with its.producer.transaction(MESSAGE):
                raise LookupError
        assert its.ends == [COMMIT, ROLLBACK]


@under_either_loop
async def test_what_is_said_explicitly_counts() -> None:
    async with world() as its:
        async with its.producer.transaction(MESSAGE) as transaction:
            transaction.rollback()
        async with its.producer.transaction(MESSAGE) as transaction:
            transaction.unknown()
        with pytest.raises(LookupError):
            async with its.producer.transaction(MESSAGE) as transaction:
                transaction.commit()
                raise LookupError
        assert its.ends == [ROLLBACK, COMMIT]


@under_either_loop
async def test_a_cancelled_block_is_rolled_back() -> None:
    async with world() as its:
        with anyio.CancelScope() as scope:
            async with its.producer.transaction(MESSAGE):
                scope.cancel()
                await anyio.sleep_forever()
        assert its.ends == [ROLLBACK]


@under_either_loop
async def test_a_broker_that_asks_hears_what_the_producer_knows() -> None:
    async with world() as its:
        async with its.producer.transaction(MESSAGE) as transaction:
            key = transaction.result.msg_id
            assert await its.ask(key) == UNKNOWN
        assert await its.ask(key) == ROLLBACK, "a second copy of a half that was committed"
        assert await its.ask("NOBODY KNOWS") == UNKNOWN


@under_either_loop
async def test_an_end_that_was_not_confirmed_is_answered_later() -> None:
    async with world() as its:
        its.broker.handlers[RequestCode.END_TRANSACTION] = lambda request: answer_to(
            request, ResponseCode.SYSTEM_BUSY
        )
        async with its.producer.transaction(MESSAGE) as transaction:
            pass
        assert not transaction.is_confirmed
        its.broker.handlers[RequestCode.END_TRANSACTION] = answer_to
        assert await its.ask(transaction.result.msg_id) == COMMIT


@under_either_loop
async def test_hooks_hear_of_an_end_when_a_broker_has_taken_it() -> None:
    hook = Ends()
    async with world(hooks=[hook]) as its:
        its.broker.handlers[RequestCode.END_TRANSACTION] = lambda request: answer_to(
            request, ResponseCode.SYSTEM_BUSY
        )
        async with its.producer.transaction(MESSAGE) as asked_later:
            pass
        assert hook.seen == []
        its.broker.handlers[RequestCode.END_TRANSACTION] = answer_to
        await its.ask(asked_later.result.msg_id)
        while not hook.seen:
            await anyio.sleep(0.001)
        async with its.producer.transaction(MESSAGE) as rolled_back:
            rolled_back.rollback()
        async with its.producer.transaction(MESSAGE) as left:
            left.unknown()
    known = [(each.msg_id, each.state, each.from_check) for each in hook.seen]
    assert known == [
        (asked_later.result.msg_id, "commit", True),
        (rolled_back.result.msg_id, "rollback", False),
        (left.result.msg_id, "unknown", False),
    ]
    assert {each.topic for each in hook.seen} == {"orders"}


@under_either_loop
async def test_a_transaction_that_the_broker_has_given_up_is_an_error() -> None:
    async with world() as its:
        its.broker.handlers[RequestCode.END_TRANSACTION] = lambda request: answer_to(
            request, ResponseCode.SYSTEM_ERROR
        )
        with pytest.raises(BrokerError):
            async with its.producer.transaction(MESSAGE):
                pass
        with pytest.raises(LookupError):
            async with its.producer.transaction(MESSAGE):
                raise LookupError


@under_either_loop
async def test_the_users_check_is_asked_about_transactions_of_others() -> None:
    async def check(message: MessageExt) -> TransactionState:
        await anyio.lowlevel.checkpoint()
        if message.msg_id == "bad":
            raise LookupError(message.msg_id)
        return "commit" if message.msg_id == "good" else "rollback"

    async with world(check) as its:
        await its.producer.send(MESSAGE)
        assert await its.ask("good") == COMMIT
        assert await its.ask("other") == ROLLBACK
        assert await its.ask("bad") == UNKNOWN
    async with world(lambda _: "commit") as its:
        await its.producer.send(MESSAGE)
        assert await its.ask("any") == COMMIT


@pytest.mark.slow
@under_either_loop
async def test_a_producer_with_a_check_introduces_itself_early() -> None:
    async with world(lambda _: "commit") as its:
        await its.producer.send(MESSAGE)
        while RequestCode.HEART_BEAT not in its.broker.codes():
            await anyio.sleep(0.01)


@under_either_loop
async def test_a_question_that_cannot_be_read_hurts_nobody() -> None:
    async with world() as its:
        await its.producer.send(MESSAGE)
        await its.network.say(
            MASTER, RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, 1, ONEWAY_FLAG, body=b"x")
        )
        result = await its.producer.send(MESSAGE)
        assert result.status is SendStatus.SEND_OK
        assert RequestCode.END_TRANSACTION not in its.broker.codes()


@under_either_loop
async def test_a_transaction_that_has_not_begun_has_no_result() -> None:
    async with world() as its:
        transaction = its.producer.transaction(MESSAGE)
        assert isinstance(transaction, Transaction)
        with pytest.raises(NotOpenError):
            _ = transaction.result


@under_either_loop
async def test_a_check_that_returns_something_else_leaves_it_open_and_ends_no_producer() -> None:
    returned: list[object] = [None, "COMMIT", ["commit"]]

    def check(_: MessageExt) -> TransactionState:
        return returned.pop()  # type: ignore[return-value]

    async with world(check) as its:
        await its.producer.send(MESSAGE)
        while returned:
            assert await its.ask("K" * 32) == UNKNOWN
            await its.producer.send(MESSAGE)
