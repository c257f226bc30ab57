"""Producers: plain ones that send again what got no answer, and one that ends transactions.

What is drawn for a transaction stays: it is committed, rolled back, or its producer never knows.
Who commits may say so at once, twice, to the wrong node, or only when the broker asks.

Source: RocketMQ 5.3.3, DefaultMQProducerImpl.sendMessageInTransaction, .checkTransactionState.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.message_properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    HeartbeatData,
    ProducerData,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tests.sim.consumers.client import Client, NoAnswerError, Place, wall_clock_ms
from tests.sim.consumers.seen import Decision, Sent, Transaction

ATTEMPTS: Final = 3
TOLD: Final = {
    Decision.COMMIT: TRANSACTION_COMMIT_TYPE,
    Decision.ROLLBACK: TRANSACTION_ROLLBACK_TYPE,
    Decision.NEVER: 0,
}


class Producer(Client):
    """One life of a producer. `pause_seconds` is the mean time between two messages."""

    def __init__(
        self,
        place: Place,
        ip: str,
        life: int,
        *,
        topics: tuple[str, ...],
        pause_seconds: float,
        timed_chance: float = 0.0,
    ) -> None:
        super().__init__(place, ip, life)
        self.topics = topics
        self.group = f"PG-{ip.rpartition('.')[2]}"
        self._pause_seconds = pause_seconds
        self._timed_chance = timed_chance
        self._count = 0

    def _tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._produce]

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(self.client_id, [ProducerData(self.group)])

    async def _produce(self) -> None:
        while not self.place.quits():
            await self._send_one()
            await trio.sleep(self.place.chance.expovariate(1 / self._pause_seconds))

    def _next_key(self) -> str:
        self._count += 1
        return f"{self.client_id}.{self._count}"

    async def _send_one(self) -> None:
        """Send a message, and again what was not acknowledged."""
        chance = self.place.chance
        topic = chance.choice(self.topics)
        sent = Sent(key=self._next_key(), topic=topic, invoked_at=trio.current_time())
        self.seen.sent[sent.key] = sent
        properties = {}
        if topic == self.topics[0] and chance.random() < self._timed_chance:
            name = chance.choice((PROPERTY_DELAY_LEVEL, PROPERTY_TIMER_DELAY_MS))
            properties[name] = "1" if name == PROPERTY_DELAY_LEVEL else "1500"
        for _ in range(ATTEMPTS):
            try:
                answer = await self._send(sent.key, topic, properties, sys_flag=0)
            except NoAnswerError as error:
                self.note(f"{sent.key}: {error}")
            else:
                self.note(f"{sent.key} {topic}: {answer.code} {answer.remark}")
                if not answer.code:
                    sent.is_acknowledged = True
                    sent.ended_at = trio.current_time()
                    return
            await trio.sleep(0.05)
        await self._find_routes()

    async def _send(
        self, key: str, topic: str, properties: dict[str, str], sys_flag: int
    ) -> RemotingCommand:
        whole = {PROPERTY_UNIQUE_KEY: key, "WAIT": "true", **properties}
        text = "".join(f"{name}\x01{value}\x02" for name, value in whole.items())
        queue_id = self.place.chance.choice(self.queues(topic) or [0])
        header = SendMessageRequestHeaderV2(
            self.group, topic, "TBW102", 4, queue_id, sys_flag, wall_clock_ms(), 0, text
        )
        body = key.encode()
        return await self.ask(self.master(topic), RequestCode.SEND_MESSAGE_V2, header, body)


class TransactionProducer(Producer):
    """Sends halves, and says what becomes of them."""

    async def _send_one(self) -> None:
        chance = self.place.chance
        decision = chance.choice((Decision.COMMIT, Decision.COMMIT, *Decision))
        now = trio.current_time()
        transaction = Transaction(key=self._next_key(), decision=decision, invoked_at=now)
        self.seen.transactions[transaction.key] = transaction
        properties = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self.group}
        try:
            answer = await self._send(
                transaction.key, self.topics[0], properties, TRANSACTION_PREPARED_TYPE
            )
        except NoAnswerError as error:
            self.note(f"{transaction.key}: {error}")
            return
        self.note(f"{transaction.key} {decision.name}: {answer.code} {answer.remark}")
        if answer.code:
            return
        transaction.is_prepared = True
        transaction.ended_at = trio.current_time()
        told = answer.decode_header(SendMessageResponseHeader)
        if chance.random() < 0.7:
            header = EndTransactionRequestHeader(
                self.group,
                told.queue_offset,
                int(told.msg_id[16:], 16),
                TOLD[decision],
                from_transaction_check=False,
            )
            self._nursery.start_soon(self._end_transaction, transaction, header)

    async def _end_transaction(
        self, transaction: Transaction, header: EndTransactionRequestHeader
    ) -> None:
        """Say it once or several times, now and then to a node that need not be the master."""
        chance = self.place.chance
        await trio.sleep(chance.choice((0.0, 0.0, 0.3, 2.0)))
        for _ in range(chance.choice((1, 1, 2, 3))):
            is_astray = chance.random() < 0.2
            try:
                address = self.master(self.topics[0])
                if is_astray:
                    address = chance.choice(self.place.broker_addresses)
                if chance.random() < 0.3:  # as RocketMQ's clients do, always
                    await self.tell(address, RequestCode.END_TRANSACTION, header)
                    continue
                answer = await self.ask(address, RequestCode.END_TRANSACTION, header)
            except NoAnswerError as error:
                self.note(f"{transaction.key} end: {error}")
                continue
            self.note(f"{transaction.key} end: {answer.code} {answer.remark}")
            if not answer.code and transaction.decision is not Decision.NEVER:
                transaction.was_ended = True

    def _pushed(self, address: str, command: RemotingCommand) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            asked = command.decode_header(CheckTransactionStateRequestHeader)
            self._nursery.start_soon(self._answer_check, address, asked)

    async def _answer_check(self, address: str, asked: CheckTransactionStateRequestHeader) -> None:
        key = asked.transaction_id or ""
        transaction = self.seen.transactions.get(key)
        self.note(f"{key} is checked")
        if transaction is None:
            self.seen.oddities.append(f"{self.client_id} was asked about {key!r}")
            return
        header = EndTransactionRequestHeader(
            self.group,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            TOLD[transaction.decision],
            from_transaction_check=True,
        )
        try:
            await self.tell(address, RequestCode.END_TRANSACTION, header)
        except NoAnswerError as error:
            self.note(f"{key} answer: {error}")
