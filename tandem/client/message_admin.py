"""The rules of looking for messages: by id, by key, by time, and along the way of one.

A message has two ids. Its *unique key* is the producer's, and stays the same in retries and dead
letters; the index of its topic knows it. Its *offset id* is the broker's: where it is stored.

    original                          topic T, unique key K
      |  consumer fails
      v
    retries                           topic %RETRY%group, unique key K, RECONSUME_TIMES 1, 2, ..
      |  (while they wait: in SCHEDULE_TOPIC_XXXX, with %RETRY%group for a REAL_TOPIC)
      v  too many
    dead letter                       topic %DLQ%group, unique key K

Source: RocketMQ 5.3.3, MQAdminImpl.queryMessage, viewMessage; SendMessageProcessor.
consumerSendMsgBack; MessageTrackDetail.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final

from tandem.client.admin_calls import AdminCalls, illegible
from tandem.client.admin_results import (
    FateAt,
    FoundMessage,
    GroupFate,
    MessagePage,
    MessageTrace,
    TopicQueue,
)
from tandem.client.compression import decompressed
from tandem.client.errors import (
    CompressedBodyError,
    MessageNotFoundError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Flow
from tandem.client.group_admin import TOOLS_GROUP, GroupAdministration
from tandem.client.pull_answer import ALL_TAGS, pull_result
from tandem.client.topic_admin import TopicAdministration
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_messages, decode_offset_msg_id
from tandem.wire.message_properties import KEY_SEPARATOR, PROPERTY_REAL_TOPIC, PROPERTY_UNIQUE_KEY
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import UNIQUE_KEY_QUERY, RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import SCHEDULE_TOPIC, dlq_topic, retry_topic

MESSAGES_PER_PULL_MAX: Final = 256
MESSAGES_MAX_DEFAULT: Final = 64
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
TIME_MAX_MS: Final = (1 << 63) - 1


PULL_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS.value,
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.PULL_OFFSET_MOVED.value,
    }
)

CONSUMED: Final = "consumed"
NOT_YET: Final = "not yet consumed"
AGAIN: Final = "to be delivered again"
DEAD: Final = "dead letter"


class _Reading:
    """How far one queue has been read; `chunk` messages at most with each pull."""

    def __init__(self, queue: TopicQueue, offset: int, chunk: int) -> None:
        self.queue = queue
        self.offset = offset
        self.chunk = chunk
        self.messages: deque[MessageExt] = deque()


class MessageAdministration:
    """Looks for messages for one administrator. Flows only."""

    def __init__(
        self, calls: AdminCalls, topics: TopicAdministration, groups: GroupAdministration
    ) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups

    def by_id(self, message_id: str, topic: str = "") -> Flow[MessageExt]:
        """Return a message by its offset id or, with its topic, by its unique key.

        Raises:
            MessageNotFoundError: no broker holds it.
        """
        return (yield from self._find(message_id, topic))[0]

    def _find(self, message_id: str, topic: str) -> Flow[tuple[MessageExt, str]]:
        """Return a message, and the name of the broker that has it."""
        if topic:
            found = yield from self._query(topic, message_id, unique=True)
            if found:
                return found[-1]
        return (yield from self._at(message_id, topic))

    def _at(self, message_id: str, topic: str) -> Flow[tuple[MessageExt, str]]:
        try:
            _, offset = decode_offset_msg_id(message_id)
        except (MalformedMessageError, ValueError) as error:
            raise MessageNotFoundError(
                f"a message {message_id!r}", needs_topic=not topic
            ) from error
        # Any node of a group has the same bytes at the same place, also if the one that stored
        # them is gone. Another group has others there.
        answers = yield from self._calls.each_broker(
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewMessageRequestHeader(offset),
            ResponseCode.SYSTEM_ERROR,
        )
        for answer in answers:
            for message in _decoded(answer.command, answer.address):
                if message.offset_msg_id == message_id.upper():
                    return message, answer.broker_name
        raise MessageNotFoundError(f"a message {message_id}", needs_topic=not topic)

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = MESSAGES_MAX_DEFAULT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
    ) -> Flow[list[MessageExt]]:
        """Return the newest messages with a key, oldest first."""
        found = yield from self._query(
            topic, key, unique=False, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
        )
        return [message for message, _ in found[-count_max:]]

    def _query(
        self,
        topic: str,
        key: str,
        *,
        unique: bool,
        count_max: int = MESSAGES_MAX_DEFAULT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
    ) -> Flow[list[tuple[MessageExt, str]]]:
        """Ask the index of every broker. Hashes are in it, so keys are compared here.

        Return messages, oldest first, with the names of their brokers.
        """
        header = QueryMessageRequestHeader(topic, key, count_max, begin_ms, end_ms)
        fields = RemotingCommand(RequestCode.QUERY_MESSAGE, ext=header).ext_fields()
        if unique:
            fields = {**fields, UNIQUE_KEY_QUERY: "true"}
        answers = yield from self._calls.each_broker(
            RequestCode.QUERY_MESSAGE,
            fields,
            ResponseCode.QUERY_NOT_FOUND,
            ResponseCode.TOPIC_NOT_EXIST,
        )
        found = [
            (message, answer.broker_name)
            for answer in answers
            for message in _decoded(answer.command, answer.address)
            if message.topic == topic and _has(message, key, unique=unique)
        ]
        return sorted(found, key=lambda each: (each[0].store_timestamp_ms, each[0].physical_offset))

    def by_time(
        self, topic: str, *, from_ms: int, to_ms: int, count_max: int = MESSAGES_MAX_DEFAULT
    ) -> Flow[list[MessageExt]]:
        """Return the first messages stored at `from_ms` or later, and before `to_ms`.

        Raises:
            RouteNotFoundError: no broker has the topic.
        """
        queues = yield from self._topics.queues(topic)
        found: list[MessageExt] = []
        for queue in queues:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header = SearchOffsetRequestHeader(topic, queue.queue_id, from_ms)
            answer = yield from self._calls.broker(queue.broker_name, code, header)
            offset = answer.command.decode_header(OffsetResponseHeader).offset
            for message in (yield from self._read(topic, queue, offset, count_max)):
                if message.store_timestamp_ms >= to_ms:
                    break
                if message.store_timestamp_ms >= from_ms:
                    found.append(message)
        found.sort(key=lambda each: (each.store_timestamp_ms, each.physical_offset))
        return found[:count_max]

    def all_of(
        self, topic: str, *, count_max: int = MESSAGES_MAX_DEFAULT
    ) -> Flow[list[MessageExt]]:
        """Return the first messages that a topic holds: dead letters of %DLQ%group, say.

        Raises:
            RouteNotFoundError: no broker has the topic.
        """
        queues = yield from self._topics.queues(topic)
        found: list[MessageExt] = []
        for queue in queues:
            found += yield from self._read(topic, queue, queue.min_offset, count_max)
        found.sort(key=lambda each: (each.store_timestamp_ms, each.physical_offset))
        return found[:count_max]

    def _read(
        self, topic: str, queue: TopicQueue, offset: int, count_max: int
    ) -> Flow[list[MessageExt]]:
        """Return up to this many messages from an offset on."""
        found: list[MessageExt] = []
        while offset < queue.max_offset and len(found) < count_max:
            wanted = min(MESSAGES_PER_PULL_MAX, count_max - len(found))
            messages, next_offset = yield from self._pull(topic, queue, offset, wanted)
            found += messages
            if next_offset <= offset:
                break
            offset = next_offset
        return found[:count_max]

    def _pull(
        self, topic: str, queue: TopicQueue, offset: int, count_max: int
    ) -> Flow[tuple[list[MessageExt], int]]:
        """Return what one pull gives, and where to go on."""
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=PULL_FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=ALL_TAGS,
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        answer = yield from self._calls.broker(
            queue.broker_name, RequestCode.PULL_MESSAGE, header, accepted=PULL_ANSWERS
        )
        result = pull_result(
            answer.command, answer.address, topic, queue.queue_id, ALL_TAGS, offset
        )
        return list(result.messages), result.next_begin_offset

    def page_of_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str = "",
        count_max: int = MESSAGES_MAX_DEFAULT,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Flow[MessagePage]:
        """Return some messages of one queue from an offset on, of this many bytes at most.

        One is in it also if it is longer. Without a broker name the queue has to be at one alone.

        Raises:
            RouteNotFoundError: no broker has the topic, or the queue, or several have the queue.
        """
        queues = [
            each
            for each in (yield from self._topics.queues(topic))
            if each.queue_id == queue_id and broker_name in ("", each.broker_name)
        ]
        if len(queues) != 1:
            names = ", ".join(each.broker_name for each in queues)
            reason = f"queue {queue_id} is at {names}" if queues else f"it has no queue {queue_id}"
            raise RouteNotFoundError(topic, RouteCause.NO_QUEUE, reason)
        reading = _Reading(queues[0], max(offset, queues[0].min_offset), count_max)
        found: list[FoundMessage] = []
        left = bytes_max
        while len(found) < count_max and left > 0:
            yield from self._fill(topic, reading)
            if not reading.messages:
                break
            message = reading.messages.popleft()
            found.append(FoundMessage(reading.queue.broker_name, message))
            left -= len(message.body)
        return MessagePage(found, is_whole=not (yield from self._fill(topic, reading)))

    def page_by_time(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = TIME_MAX_MS,
        skip: int = 0,
        count_max: int = MESSAGES_MAX_DEFAULT,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Flow[MessagePage]:
        """Return the first messages stored at `from_ms` or later, and before `to_ms`.

        `skip`: this many of those stored at `from_ms` itself are left out: a page before had them.
        Queues are read side by side, no further than needed. One message is in the page also if it
        is longer than `bytes_max`.

        Raises:
            RouteNotFoundError: no broker has the topic.
        """
        queues = yield from self._topics.queues(topic)
        chunk = max(1, min(count_max, 2 * count_max // max(1, len(queues))))
        row: list[tuple[int, str, int, int, _Reading]] = []
        for queue in queues:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header = SearchOffsetRequestHeader(topic, queue.queue_id, from_ms)
            answer = yield from self._calls.broker(queue.broker_name, code, header)
            offset = answer.command.decode_header(OffsetResponseHeader).offset
            reading = _Reading(queue, max(offset, queue.min_offset), chunk)
            yield from self._line_up(topic, reading, row, from_ms, to_ms)
        found: list[FoundMessage] = []
        left = bytes_max
        while row and len(found) < count_max and left > 0:
            at_ms, name, _, _, reading = heappop(row)
            message = reading.messages.popleft()
            if at_ms == from_ms and skip > 0:
                skip -= 1
            else:
                found.append(FoundMessage(name, message))
                left -= len(message.body)
            yield from self._line_up(topic, reading, row, from_ms, to_ms)
        return MessagePage(found, is_whole=not row)

    def _line_up(
        self,
        topic: str,
        reading: _Reading,
        row: list[tuple[int, str, int, int, _Reading]],
        from_ms: int,
        to_ms: int,
    ) -> Flow[None]:
        """Have the next message of a queue in the row, if it has one of that time."""
        while (yield from self._fill(topic, reading)):
            message = reading.messages[0]
            at_ms = message.store_timestamp_ms
            if at_ms >= to_ms:
                return
            if at_ms >= from_ms:
                name, queue_id = reading.queue.broker_name, reading.queue.queue_id
                heappush(row, (at_ms, name, message.physical_offset, queue_id, reading))
                return
            reading.messages.popleft()

    def _fill(self, topic: str, reading: _Reading) -> Flow[bool]:
        """Read on if nothing is left of what was read; return whether there is a message."""
        while not reading.messages and reading.offset < reading.queue.max_offset:
            messages, next_offset = yield from self._pull(
                topic, reading.queue, reading.offset, reading.chunk
            )
            reading.messages.extend(messages)
            if next_offset <= reading.offset:
                break
            reading.offset = next_offset
        return bool(reading.messages)

    def trace(self, topic: str, message_id: str) -> Flow[MessageTrace]:
        """Return a message, and what became of it in every group that reads its topic.

        Raises:
            MessageNotFoundError: there is none.
        """
        message, broker_name = yield from self._find(message_id, topic)
        described = yield from self._topics.describe(message.topic)
        waiting = yield from self._retries_that_wait(message)
        fates: dict[str, GroupFate] = {}
        for group in described.groups:
            fates[group] = yield from self._fate(message, broker_name, group, waiting)
        return MessageTrace(message, list(fates.values()))

    def _retries_that_wait(self, message: MessageExt) -> Flow[dict[str, int]]:
        """Return how many are in the queues of delays, by the topic that they wait for."""
        key = message.properties.get(PROPERTY_UNIQUE_KEY)
        counts: dict[str, int] = {}
        if key:
            for each, _ in (yield from self._query(SCHEDULE_TOPIC, key, unique=True)):
                topic = each.properties.get(PROPERTY_REAL_TOPIC, "")
                counts[topic] = counts.get(topic, 0) + 1
        return counts

    def _fate(
        self, message: MessageExt, broker_name: str, group: str, waiting: dict[str, int]
    ) -> Flow[GroupFate]:
        key = message.properties.get(PROPERTY_UNIQUE_KEY, "")
        retries: list[tuple[MessageExt, str]] = []
        dead: list[tuple[MessageExt, str]] = []
        if key:
            retries = yield from self._query(retry_topic(group), key, unique=True)
            dead = yield from self._query(dlq_topic(group), key, unique=True)
        description = yield from self._groups.describe(group)
        offsets = {
            (each.topic, each.broker_name, each.queue_id): each.consumer_offset
            for each in description.queues
        }

        def is_consumed(found: tuple[MessageExt, str]) -> bool:
            each, name = found
            return each.queue_offset < offsets.get((each.topic, name, each.queue_id), 0)

        first = (message, broker_name)
        last = retries[-1] if retries else first
        delivered = sum(map(is_consumed, [first, *retries]))
        waits = waiting.get(retry_topic(group), 0) > len(retries)
        if dead:
            state = DEAD
        elif waits or (retries and not is_consumed(last)):
            state = AGAIN
        else:
            state = CONSUMED if is_consumed(last) else NOT_YET
        places = [
            FateAt(
                topic=each.topic,
                broker_name=name,
                queue_id=each.queue_id,
                queue_offset=each.queue_offset,
                store_timestamp_ms=each.store_timestamp_ms,
                reconsume_times=each.reconsume_times,
                offset_msg_id=each.offset_msg_id,
            )
            for each, name in sorted(
                (*retries, *dead), key=lambda found: found[0].store_timestamp_ms
            )
        ]
        return GroupFate(group=group, state=state, times=delivered, places=places)


def _has(message: MessageExt, key: str, *, unique: bool) -> bool:
    if unique:
        return message.properties.get(PROPERTY_UNIQUE_KEY) == key
    return key in message.keys.split(KEY_SEPARATOR) or message.msg_id == key


def _decoded(command: RemotingCommand, address: str) -> list[MessageExt]:
    """Return the messages of an answer; a body that cannot be decompressed stays as it is."""
    try:
        messages = decode_messages(command.body)
    except MalformedMessageError as error:
        raise illegible(address, error) from error
    found = []
    for message in messages:
        try:
            found.append(decompressed(message))
        except CompressedBodyError:
            found.append(message)
    return found
