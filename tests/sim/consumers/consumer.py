"""Consumers of a group that share queues out among themselves, as RocketMQ's push consumers do.

    heartbeat -> list of clients -> averaged allocation -> one task a queue: pull, consume, commit

Concurrent ones send back what fails, and get it again through the retry topic of the group. Orderly
ones lock queues, and believe in a lock for 3 s (a tenth of RocketMQ's 30).

Source: RocketMQ 5.3.3, RebalanceImpl, DefaultMQPushConsumerImpl, ConsumeMessageOrderlyService.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_SUSPEND,
    ConsumerData,
    ConsumerIdList,
    ConsumerSendMsgBackRequestHeader,
    GroupRequestHeader,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueBody,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SubscriptionData,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.system_topics import retry_topic
from tests.sim.consumers.client import (
    RETRY_SECONDS,
    Client,
    NoAnswerError,
    Place,
)
from tests.sim.consumers.seen import (
    Commit,
    Consumed,
    Grant,
    Holding,
    Moved,
    OffsetTold,
    QueueKey,
    SentBack,
)

REBALANCE_SECONDS: Final = 2.0
PERSIST_SECONDS: Final = 0.5
ASK_SECONDS: Final = 1.0
LOCK_EVERY_SECONDS: Final = 2.0
TRUST_SECONDS: Final = 3.0
SUSPEND_MS: Final = 1_500
PULL_SECONDS: Final = 3.0
PULL_MAX: Final = 4
MAX_RECONSUME_TIMES: Final = 3


class ConsumeQueue:
    """A queue that a client reads."""

    def __init__(self, key: QueueKey, session: int, offset: int) -> None:
        self.key = key
        self.session = session
        self.offset = offset
        """What to pull next."""
        self.consumed = offset
        self.persisted = -1
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.holding: Holding | None = None


class PushConsumer(Client):
    """One client of a group. `fails` says how often a message is to fail, by its key."""

    _beats_slaves = True

    def __init__(
        self,
        place: Place,
        ip: str,
        life: int,
        *,
        group: str,
        topic: str,
        is_orderly: bool,
        fails: Callable[[str], int],
    ) -> None:
        super().__init__(place, ip, life)
        self.group = group
        self.topic = topic
        self.topics = (topic,) if is_orderly else (topic, retry_topic(group))
        self.is_orderly = is_orderly
        self._fails = fails
        self._mine: dict[QueueKey, ConsumeQueue] = {}
        self._wake = trio.Event()

    def _tasks(self) -> list[Callable[[], Awaitable[None]]]:
        tasks: list[Callable[[], Awaitable[None]]]
        tasks = [self._rebalance, self._persist, self._ask_around]
        return [*tasks, self._lock_again] if self.is_orderly else tasks

    def _heartbeat(self) -> HeartbeatData:
        subscriptions = [SubscriptionData(topic) for topic in self.topics]
        return HeartbeatData(
            self.client_id,
            consumer_data_set=[
                ConsumerData(
                    self.group,
                    "CONSUME_PASSIVELY",
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                    subscription_data_set=subscriptions,
                )
            ],
        )

    def _pushed(self, address: str, command: RemotingCommand) -> None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._wake.set()

    def _died(self) -> None:
        for queue in self._mine.values():
            _release(queue)

    # Who reads what

    async def _rebalance(self) -> None:
        while True:
            for topic in self.topics:
                try:
                    await self._share(topic)
                except NoAnswerError as error:
                    self.note(f"rebalance: {error}")
            with trio.move_on_after(REBALANCE_SECONDS):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _share(self, topic: str) -> None:
        header = GroupRequestHeader(self.group)
        answer = await self.ask(self.master(topic), RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if answer.code:
            return
        ids = decode_json_body(answer.body, ConsumerIdList).consumer_id_list
        mine = averaged(self.queues(topic), sorted(ids), self.client_id)
        for queue in [q for q in self._mine.values() if q.key[0] == topic]:
            if queue.key[1] not in mine:
                await self._drop(queue)
        fresh = [queue_id for queue_id in mine if (topic, queue_id) not in self._mine]
        for queue_id in fresh:
            await self._take(topic, queue_id)

    async def _take(self, topic: str, queue_id: int) -> None:
        key = (topic, queue_id)
        self.seen.session_count += 1
        queue = ConsumeQueue(key, self.seen.session_count, 0)
        if self.is_orderly and not await self._lock([queue]):
            return
        offset = await self._committed(key)
        if offset is None:
            _release(queue)
            return
        queue.offset = queue.consumed = offset
        self.note(f"takes {topic} {queue_id} from {offset}")
        self._mine[key] = queue
        self._nursery.start_soon(self._read, queue)

    async def _drop(self, queue: ConsumeQueue) -> None:
        self.note(f"drops {queue.key}")
        queue.scope.cancel()
        await queue.ended.wait()
        if self._mine.get(queue.key) is queue:  # its lock may have been lost meanwhile
            del self._mine[queue.key]
        _release(queue)
        await self._commit(queue)
        if self.is_orderly:
            body = encode_json_body(
                LockBatchRequestBody(self.client_id, self.group, [self._body(queue)])
            )
            await self.ask(self.master(self.topic), RequestCode.UNLOCK_BATCH_MQ, None, body)

    async def _ask_around(self) -> None:
        """Ask any node where the group is, as tools do: who does not know has to say so."""
        chance = self.place.chance
        while True:
            await trio.sleep(ASK_SECONDS * chance.uniform(0.5, 1.5))
            topic = chance.choice(self.topics)
            queue_ids = self.queues(topic)
            if queue_ids:
                with suppress(NoAnswerError):
                    address = chance.choice(self.place.knowing_addresses)
                    await self._committed((topic, chance.choice(queue_ids)), address)

    async def _committed(self, key: QueueKey, address: str = "") -> int | None:
        """Where the group is, by the master or another node; None if nobody says."""
        header = QueryConsumerOffsetRequestHeader(self.group, *key, set_zero_if_not_found=False)
        asked_at = trio.current_time()
        address = address or self.master(key[0])
        answer = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return None
        offset = None if answer.code else answer.decode_header(OffsetResponseHeader).offset
        told = OffsetTold(
            node=self.place.node_of(address),
            group=self.group,
            queue=key,
            offset=offset,
            asked_at=asked_at,
            answered_at=trio.current_time(),
        )
        self.seen.told.append(told)
        return offset or 0

    async def _persist(self) -> None:
        while True:
            await trio.sleep(PERSIST_SECONDS)
            for queue in list(self._mine.values()):
                try:
                    await self._commit(queue)
                except NoAnswerError as error:
                    self.note(f"commit: {error}")

    async def _commit(self, queue: ConsumeQueue) -> None:
        if queue.consumed == queue.persisted or not queue.consumed:
            return
        commit = self._begin_commit(queue)
        header = UpdateConsumerOffsetRequestHeader(self.group, *queue.key, commit.offset)
        answer = await self.ask(
            self.master(queue.key[0]), RequestCode.UPDATE_CONSUMER_OFFSET, header
        )
        commit.answered_at = trio.current_time()
        if not answer.code:
            commit.is_settled = True
            queue.persisted = commit.offset

    def _begin_commit(self, queue: ConsumeQueue) -> Commit:
        commit = Commit(
            group=self.group,
            queue=queue.key,
            offset=queue.consumed,
            asked_at=trio.current_time(),
        )
        self.seen.commits.append(commit)
        return commit

    # Locks

    async def _lock_again(self) -> None:
        while True:
            await trio.sleep(LOCK_EVERY_SECONDS)
            queues = list(self._mine.values())
            try:
                if queues:
                    await self._lock(queues)
            except NoAnswerError as error:
                self.note(f"locks: {error}")

    async def _lock(self, queues: list[ConsumeQueue]) -> bool:
        """Whether any was given."""
        address = self.master(self.topic)
        asked_at, term = trio.current_time(), self.place.term_of(address)
        body = encode_json_body(
            LockBatchRequestBody(self.client_id, self.group, list(map(self._body, queues)))
        )
        answer = await self.ask(address, RequestCode.LOCK_BATCH_MQ, None, body)
        if answer.code:
            return False
        now = trio.current_time()
        granted = decode_json_body(answer.body, LockBatchResponseBody).lock_ok_mq_set
        ids = {body.queue_id for body in granted}
        if ids:
            self.seen.grants.append(
                Grant(node=self.place.node_of(address), asked_at=asked_at, answered_at=now)
            )
        grantor = term if term == self.place.term_of(address) else ""
        for queue in queues:
            if queue.key[1] not in ids:
                _release(queue)
            else:
                self._hold(queue, grantor, now)
        return bool(ids)

    def _hold(self, queue: ConsumeQueue, grantor: str, now: float) -> None:
        if queue.scope.cancel_called:
            return  # it was given back while the question was under way
        holding = queue.holding
        if holding is not None and holding.grantor == grantor and holding.until > now:
            holding.until = now + TRUST_SECONDS
            return
        if holding is not None and queue.key in self._mine:
            # Somebody else may have read meanwhile: begin where the group is.
            queue.scope.cancel()
            if self._mine[queue.key] is queue:
                del self._mine[queue.key]
            return
        queue.holding = Holding(
            client=self.client_id,
            queue=queue.key,
            grantor=grantor,
            begin=now,
            until=now + TRUST_SECONDS,
        )
        self.seen.holdings.append(queue.holding)

    def _body(self, queue: ConsumeQueue) -> MessageQueueBody:
        return MessageQueueBody(self._broker_name(), queue.key[1], queue.key[0])

    def _broker_name(self) -> str:
        return self.routes[self.topic].broker_datas[0].broker_name

    # Reading

    def _may_read(self, queue: ConsumeQueue) -> bool:
        holding = queue.holding
        return not self.is_orderly or (holding is not None and trio.current_time() < holding.until)

    async def _read(self, queue: ConsumeQueue) -> None:
        with queue.scope:
            while True:
                try:
                    if self._may_read(queue):
                        await self._pull(queue)
                    else:
                        await trio.sleep(RETRY_SECONDS)
                except NoAnswerError as error:
                    self.note(f"pull: {error}")
                    await trio.sleep(RETRY_SECONDS)
        queue.ended.set()

    async def _pull(self, queue: ConsumeQueue) -> None:
        flags = PULL_FLAG_SUSPEND
        commit = None
        if queue.consumed:
            flags |= PULL_FLAG_COMMIT_OFFSET
            commit = self._begin_commit(queue)
        header = PullMessageRequestHeader(
            self.group,
            *queue.key,
            queue.offset,
            PULL_MAX,
            flags,
            queue.consumed,
            SUSPEND_MS,
            0,
            expression_type="TAG",
        )
        asked_at, address = trio.current_time(), self.master(queue.key[0])
        answer = await self.ask(
            address, RequestCode.PULL_MESSAGE, header, timeout_seconds=PULL_SECONDS
        )
        if commit is not None:
            commit.answered_at = trio.current_time()
        match answer.code:
            case ResponseCode.SUCCESS:
                messages = decode_messages(answer.body)
                self._check(queue, messages)
                if await self._consume_all(queue, messages):
                    queue.offset = answer.decode_header(PullMessageResponseHeader).next_begin_offset
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                queue.offset = answer.decode_header(PullMessageResponseHeader).next_begin_offset
            case ResponseCode.PULL_OFFSET_MOVED:
                to = answer.decode_header(PullMessageResponseHeader).next_begin_offset
                self._move(queue, to, self.place.node_of(address), asked_at)
                await trio.sleep(RETRY_SECONDS)
            case _:
                self.note(f"pull: {answer.code} {answer.remark}")
                await trio.sleep(RETRY_SECONDS)

    def _move(self, queue: ConsumeQueue, to: int, node: str, asked_at: float) -> None:
        """Go on elsewhere, as if the queue had been given back and taken again."""
        moved = Moved(
            node=node,
            group=self.group,
            queue=queue.key,
            offset=queue.offset,
            to=to,
            asked_at=asked_at,
            answered_at=trio.current_time(),
        )
        self.note(str(moved))
        self.seen.moves.append(moved)
        self.seen.session_count += 1
        queue.session = self.seen.session_count
        queue.offset = queue.consumed = to

    def _check(self, queue: ConsumeQueue, messages: list[MessageExt]) -> None:
        offsets = [message.queue_offset for message in messages]
        expected = list(range(queue.offset, queue.offset + len(messages)))
        if offsets != expected or not messages:
            self._odd(queue, f"pulled {offsets} at {queue.offset}")

    def _odd(self, queue: ConsumeQueue, text: str) -> None:
        now = trio.current_time()
        self.seen.oddities.append(f"{now:.3f} {self.client_id} {self.group} {queue.key} {text}")

    async def _consume_all(self, queue: ConsumeQueue, messages: list[MessageExt]) -> bool:
        """Whether it got through; an orderly one stops when it trusts its lock no more."""
        for message in messages:
            if not self._may_read(queue):
                queue.offset = queue.consumed
                return False
            await self._consume(queue, message)
            queue.consumed = message.queue_offset + 1
        return True

    async def _consume(self, queue: ConsumeQueue, message: MessageExt) -> None:
        key = message.properties[PROPERTY_UNIQUE_KEY]
        await trio.sleep(self.place.chance.uniform(0.001, 0.02))
        is_ok = self.is_orderly or message.reconsume_times >= self._fails(key)
        self.note(f"{queue.key} {message.queue_offset} {key} {is_ok}")
        consumed = Consumed(
            at_seconds=trio.current_time(),
            group=self.group,
            client=self.client_id,
            session=queue.session,
            queue=queue.key,
            queue_offset=message.queue_offset,
            key=key,
            reconsume_times=message.reconsume_times,
            is_ok=is_ok,
        )
        self.seen.consumed.append(consumed)
        while not is_ok and not await self._send_back(message, key):
            await trio.sleep(RETRY_SECONDS)

    async def _send_back(self, message: MessageExt, key: str) -> bool:
        header = ConsumerSendMsgBackRequestHeader(
            message.physical_offset,
            self.group,
            self.place.chance.choice((0, 0, 1, 2)),
            origin_msg_id=message.offset_msg_id,
            origin_topic=message.topic,
            max_reconsume_times=MAX_RECONSUME_TIMES,
        )
        try:
            answer = await self.ask(
                self.master(self.topic), RequestCode.CONSUMER_SEND_MSG_BACK, header
            )
        except NoAnswerError:
            return False
        if answer.code:
            self.note(f"send back: {answer.code} {answer.remark}")
            return False
        self.seen.sent_back.append(
            SentBack(group=self.group, key=key, reconsume_times=message.reconsume_times)
        )
        return True


def averaged(queues: list[int], ids: list[str], own: str) -> list[int]:
    """Return the share of a client. Source: AllocateMessageQueueAveragely."""
    if own not in ids:
        return []
    index, count = ids.index(own), len(ids)
    mod = len(queues) % count
    share = max(1, len(queues) // count + (1 if mod and index < mod else 0))
    start = index * share if mod and index < mod else index * share + mod
    if len(queues) <= count:
        start, share = index, 1
    return queues[start : start + share]


def _release(queue: ConsumeQueue) -> None:
    """Trust its lock no more, from now on."""
    if queue.holding is not None:
        queue.holding.until = min(queue.holding.until, trio.current_time())
