"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the path of a put.

    check --> append --+--> answer                       nobody to wait for, or WAIT=false
                       +--> park --> submit --> answer   the disk, replicas, or both have it,
                                                         or their time is up

Puts that wait are parked as answers and not as tasks; and all puts that came in one round wait
together, as one `ParkedRound`, until disk and replicas have reached the last of them. They were
written together, so they leave together, and the services count rounds instead of messages.

A message that is answered with FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE *is*
in the log; the remark says in words what went wrong.

Replication is asked first whether this node takes puts. Whatever is refused was not stored, and the
remark says so. In a fenced group a put with TANDEM_ACK=flushed waits for the disks of the replicas,
whatever its group waits for.

Source: RocketMQ 5.3.3, SendMessageProcessor, AbstractSendMessageProcessor.msgCheck; store pipeline
in DefaultMessageStore.asyncPutMessage and CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import trio

from ha.results import Ack, PutWait
from node.errors import RequestError
from node.handlers.group_topics import dead_letter_topic
from node.handlers.recall_handles import recall_handle
from node.handlers.send_half import SendHalf
from node.handlers.send_properties import (
    delay_level,
    is_half,
    is_waiting,
    wants_flushed,
    with_delay_level,
)
from node.handlers.stored_answer import (
    RunAnswers,
    encoded,
    stored_frame,
    stored_response,
    with_outcome,
)
from node.remoting.dispatcher import response_to
from node.remoting.request import Right, of_topic, serves
from node.security.access import Action, Resource
from node.tables.topic_config_table import (
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_TOPIC_PREFIX,
    topic_complaint,
)
from store import PutBatch, PutMessage, PutMessageStatus
from store.messages.send_back import DLQ_QUEUE_ID
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.reply_headers import RecallableResponseHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ha.replication import Replication
    from node.handlers.send_properties import PropertyStamp
    from node.remoting.connection import Connection, OwedAnswers
    from node.remoting.dispatcher import Answer
    from node.tables.put_times import PutTimes
    from node.tables.queue_locks import QueueLocks
    from node.tables.tables import Tables
    from store import MessageStore, PutMessageResult
    from tandem.wire.request_headers import TopicConfig
_log = logging.getLogger(__name__)

PARKED_PUTS_MAX: Final = 100_000
"""Puts that wait for disk or replica, over all connections. Beyond it sends are refused."""

_CODES: Final = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutMessageStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE: ResponseCode.SYSTEM_ERROR,
}
"""Source: SendMessageProcessor.handlePutMessageResult."""

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_PUT_OK: Final = PutMessageStatus.PUT_OK
_SEND_MESSAGE: Final = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH_MESSAGE: Final = int(RequestCode.SEND_BATCH_MESSAGE)

assert set(_CODES) == set(PutMessageStatus)

_TIMED: Final = "TIMER_D"
"""In the names of all properties that ask for a deliver time, and in hardly any others."""

NO_DELAY_LEVEL: Final = -1
"""What RocketMQ writes into a message that it makes a dead letter."""

SendHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2


class WaitPolicy(msgspec.Struct, frozen=True):
    """For what a put with WAIT waits."""

    flush: PutWait | None = None
    """None under ASYNC_FLUSH."""

    replication: PutWait | None = None
    """None under ASYNC_MASTER."""


class SendMessage:
    """Serves the puts of a node: stores those of a master, refuses those of others.

    `flush` is the group commit of a store with SYNC_FLUSH, None of others.
    """

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        properties: PropertyStamp,
        replication: Replication,
        flush: PutWait | None,
        random: Random,
        locks: QueueLocks,
        broker_name: str,
        times: PutTimes,
        *,
        rejects_transactions: bool = False,
    ) -> None:
        self._store = store
        self._put = (store.put_message, SendHalf(store, rejects=rejects_transactions).put)
        """Of a message, and of one that is put aside until it is committed."""
        self._tables = tables
        self._topics = tables.topics
        self._properties = properties
        self._refusal = replication.refusal
        self._random = random
        self._locks = locks
        self._broker_name = broker_name
        self._times = times
        self._replicated = WaitPolicy(flush, replication.waits(Ack.REPLICATED))
        self._flushed = WaitPolicy(flush, replication.waits(Ack.FLUSHED))
        self.policy_waits = self._replicated != WaitPolicy()
        """Whether any put of this node waits for disks or replicas."""
        self._parked_count = 0
        self._rounds: dict[bool, ParkedRound] = {}
        """Of the connection whose requests are being handled: by whether they wait for disks."""

    @serves(
        RequestCode.SEND_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeader,
    )
    @serves(
        RequestCode.SEND_MESSAGE_V2,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeaderV2,
    )
    @serves(
        RequestCode.SEND_BATCH_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeaderV2,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> Answer | None:
        """Put a message or a batch. This runs once per message, so it is one flat function."""
        header: SendHeader = (
            command.decode_header(SendMessageRequestHeader)
            if command.code == _SEND_MESSAGE
            else command.decode_header(SendMessageRequestHeaderV2)
        )
        if refusal := self._refusal():
            raise RequestError(refusal.code, refusal.text)
        if (
            header.reconsume_times
            and not header.batch
            and header.topic.startswith(RETRY_TOPIC_PREFIX)
        ):
            header = self._retried(header)
        topic = header.topic
        config = self._topics.get(topic)
        if config is None or topic in NOT_ALLOWED_SEND_TOPICS:
            config = self._created_topic(header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(config.write_queue_nums)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise _illegal_queue(header, config)
        if self._parked_count >= PARKED_PUTS_MAX:
            raise self._overloaded()
        properties = header.properties or ""
        if header.batch or command.code == _SEND_BATCH_MESSAGE:
            result = self._put_batch(connection, command, header, queue_id)
        else:
            message = PutMessage(
                topic,
                queue_id,
                command.body,
                self._properties.stored(properties),
                header.born_timestamp,
                connection.born_host,
                header.flag,
                header.sys_flag,
                header.reconsume_times or 0,
            )
            half = is_half(header.sys_flag, properties, header.reconsume_times)
            result = self._put[half](message)
        if result.status is not _PUT_OK:
            return self.not_stored(command, result)
        answer = self._recallable_response if _TIMED in properties else stored_frame
        response = answer(command, queue_id, properties, result)
        if self.policy_waits and not command.flag & ONEWAY_FLAG and is_waiting(properties):
            self._park(connection, properties, result.end_offset, response)
            return None
        return response

    def _recallable_response(
        self, command: RemotingCommand, queue_id: int, properties: str, result: PutMessageResult
    ) -> RemotingCommand:
        """Return the answer, with a recall handle if the message waits for its time."""
        response = stored_response(command, queue_id, properties, result)
        handle = recall_handle(self._store, result, self._broker_name)
        if handle is None or not isinstance(response.ext, SendMessageResponseHeader):
            return response
        values = msgspec.structs.asdict(response.ext)
        ext = RecallableResponseHeader(**values, recall_handle=handle)
        return msgspec.structs.replace(response, ext=ext)

    def check_takes_puts(self) -> None:
        """Raise unless this node stores messages, and has room for one more that waits.

        Raises:
            RequestError: with the reason.
        """
        if refusal := self._refusal():
            raise RequestError(refusal.code, refusal.text)
        if self._parked_count >= PARKED_PUTS_MAX:
            raise self._overloaded()

    def put_again(
        self,
        connection: Connection,
        command: RemotingCommand,
        message: PutMessage,
        response: RemotingCommand | None = None,
    ) -> RemotingCommand | None:
        """Put what a request has made of another record; SUCCESS when disk and replicas have it.

        Its WAIT is not asked: that was about the first send.
        """
        result = self._store.put_message(message)
        if result.status is not _PUT_OK:
            return self.not_stored(command, result)
        properties = str(message.properties, "utf-8")
        end = result.end_offset
        return self.answer_when_stored(connection, command, end, properties, response)

    def not_stored(self, command: RemotingCommand, result: PutMessageResult) -> RemotingCommand:
        """The answer to a request whose message was refused by the store."""
        self._times.failed_count += 1
        return response_to(command, _CODES[result.status], _reason(result))

    def answer_when_stored(
        self,
        connection: Connection,
        command: RemotingCommand,
        end_offset: int,
        properties: str = "",
        response: RemotingCommand | None = None,
    ) -> RemotingCommand | None:
        """Answer when disk and replicas have the log up to an offset; None: later.

        `response` is the answer if all goes well, SUCCESS unless given.
        """
        response = response or response_to(command)
        if not self.policy_waits or command.flag & ONEWAY_FLAG:
            return response
        self._park(connection, properties, end_offset, response)
        return None

    def _overloaded(self) -> RequestError:
        return RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]{self._parked_count} puts wait for the disk or a replica; send again",
        )

    def _retried(self, header: SendHeader) -> SendHeader:
        """Return where a message of a retry topic goes: to the dead letters, after too many tries.

        A group that reads in order has tried by itself before it sends.

        Source: AbstractSendMessageProcessor.handleRetryAndDLQ.
        """
        group = header.topic.removeprefix(RETRY_TOPIC_PREFIX)
        most = header.max_reconsume_times
        if most is None:
            most = self._tables.groups.find(group).retry_max_times
        is_over = (header.reconsume_times or 0) > most
        if not is_over and not self._locks.is_held(group, trio.current_time()):
            return header
        return msgspec.structs.replace(
            header,
            topic=dead_letter_topic(self._tables, group),
            queue_id=DLQ_QUEUE_ID,
            properties=with_delay_level(header.properties or "", NO_DELAY_LEVEL),
        )

    def has_room(self, count: int) -> bool:
        """Whether so many puts more may wait."""
        return self._parked_count + count <= PARKED_PUTS_MAX

    def park_run(self, connection: Connection, answers: RunAnswers) -> None:
        """Keep the answers of a run until its last message is where the group wants it."""
        parked = self._parked_round(connection, for_disks=False)
        parked.add(answers.record_ends[-1], answers, len(answers.record_ends))
        self._parked_count += len(answers.record_ends)

    def _park(
        self, connection: Connection, properties: str, end_offset: int, response: Answer
    ) -> None:
        """Keep the answer until this round of requests ends, and then until it is true."""
        parked = self._parked_round(connection, for_disks=wants_flushed(properties))
        parked.add(end_offset, response)
        self._parked_count += 1

    def _parked_round(self, connection: Connection, *, for_disks: bool) -> ParkedRound:
        parked = self._rounds.get(for_disks)
        if parked is None:
            policy = self._flushed if for_disks else self._replicated
            parked = self._rounds[for_disks] = ParkedRound(connection, policy, self._unpark)
            if len(self._rounds) == 1:
                connection.at_round_end(self._submit)
        # A round is about one connection: nobody else's requests are handled before its end.
        assert parked.connection is connection
        return parked

    def _submit(self) -> None:
        """Have the puts parked in this round waited for."""
        rounds, self._rounds = self._rounds, {}
        for parked in rounds.values():
            parked.submit(trio.current_time())

    def _created_topic(self, header: SendHeader) -> TopicConfig:
        topic = header.topic
        complaint = topic_complaint(topic)
        if complaint:
            raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = self._topics.config_for_send(
            topic, header.default_topic, header.default_topic_queue_nums
        )
        self._tables.change_topics(config)
        _log.info("topic %s created by a send, %d queues", topic, config.write_queue_nums)
        return config

    def _put_batch(
        self, connection: Connection, command: RemotingCommand, header: SendHeader, queue_id: int
    ) -> PutMessageResult:
        """Put a batch. The header's properties are not stored: each message has its own.

        Source: SendMessageProcessor.sendBatchMessage, CommitLog.asyncPutMessages.
        """
        if header.topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group"
            )
        if header.properties and delay_level(header.properties) > 0:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed")
        return self._store.put_batch(
            PutBatch(
                header.topic,
                queue_id,
                command.body,
                self._properties.batch_suffix,
                header.born_timestamp,
                connection.born_host,
                header.sys_flag,
                header.reconsume_times or 0,
            )
        )

    def _unpark(self, count: int, began: float) -> None:
        self._parked_count -= count
        self._times.waited(count, trio.current_time() - began)


class ParkedRound:
    """Puts of one connection whose answers wait for the disk, replicas, or both."""

    def __init__(
        self,
        connection: Connection,
        policy: WaitPolicy,
        on_answered: Callable[[int, float], None],
    ) -> None:
        """Wait by a policy; `on_answered` hears of how many puts, and since when they waited."""
        self.connection = connection
        self._puts: list[tuple[int, Answer | RunAnswers]] = []
        """End offset and answer of each, in the order of the log; a run of them may be one. All
        say that all is well until the outcome is known."""
        self._count = 0
        self._owed: OwedAnswers | None = None
        self._policy = policy
        self._on_answered = on_answered
        self._began = 0.0
        self._open_waits = 0
        self._flush_outcome = _PUT_OK
        self._flush_reason = ""
        self._replication_outcome = _PUT_OK
        self._replication_reason = ""

    def add(self, end_offset: int, answer: Answer | RunAnswers, count: int = 1) -> None:
        """Take in the next answer, or those of a run."""
        self._puts.append((end_offset, answer))
        self._count += count

    def submit(self, now: float) -> None:
        """Wait for disk and replicas side by side. May answer at once.

        Source: CommitLog.handleDiskFlushAndHA.
        """
        self._owed = self.connection.owe(self._count)
        self._began = now
        end_offset = self._puts[-1][0]
        flush, replication = self._policy.flush, self._policy.replication
        self._open_waits = (flush is not None) + (replication is not None)
        if flush is not None:
            flush.submit(end_offset, now + flush.timeout_seconds, self._flushed)
        if replication is not None:
            replication.submit(end_offset, now + replication.timeout_seconds, self._replicated)

    def _flushed(self, status: PutMessageStatus, reason: str) -> None:
        self._flush_outcome, self._flush_reason = status, reason
        self._wait_ended()

    def _replicated(self, status: PutMessageStatus, reason: str) -> None:
        self._replication_outcome, self._replication_reason = status, reason
        self._wait_ended()

    def _wait_ended(self) -> None:
        self._open_waits -= 1
        if self._open_waits:
            return
        if self._flush_outcome is not _PUT_OK or self._replication_outcome is not _PUT_OK:
            self._note_outcomes()
        assert self._owed is not None, "waits end after they began"
        self._owed.write(b"".join([_frames(answer) for _, answer in self._puts]))
        self._on_answered(self._count, self._began)

    def _note_outcomes(self) -> None:
        """Another code for what disk or replicas have not reached; replicas have the last word."""
        policy = self._policy
        for wait, status, reason in (
            (policy.flush, self._flush_outcome, self._flush_reason),
            (policy.replication, self._replication_outcome, self._replication_reason),
        ):
            if wait is None or status is _PUT_OK:
                continue
            reached, code = wait.reached(), _CODES[status]
            self._puts = [
                (end, answer) if end <= reached else (end, with_outcome(answer, code, reason))
                for end, answer in self._single()
            ]

    def _single(self) -> list[tuple[int, Answer]]:
        puts: list[tuple[int, Answer]] = []
        for end, answer in self._puts:
            puts += answer.single() if isinstance(answer, RunAnswers) else [(end, answer)]
        return puts


def _frames(answer: Answer | RunAnswers) -> bytes:
    return answer.frames if isinstance(answer, RunAnswers) else encoded(answer)


def _reason(result: PutMessageResult) -> str:
    return result.reason if result.status.is_stored else f"{result.reason}; nothing was stored"


def _illegal_queue(header: SendHeader, config: TopicConfig) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{header.queue_id}] is illegal, {header.topic}"
        f" readQueueNums={config.read_queue_nums} writeQueueNums={config.write_queue_nums}",
    )
