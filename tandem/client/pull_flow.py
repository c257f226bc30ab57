"""The rules of reading: what is asked of a queue, and what the answers mean.

`queue_flow` chooses the broker that is asked for messages: the master of the queue's broker name
or, if that cannot be reached, another of its nodes. That one may lag: its max offset is lower than
the master's, never its messages different.

Where a reader begins and ends is the master's word alone, and is waited for: the first and the last
offset, an offset by time, the offset of a group. So a reader `until_end` reads at least everything
that was acknowledged as replicated before it began, whichever node it reads from. Only "earliest"
does not wait: without a master it is 0, and the broker corrects it (as CONSUME_FROM_FIRST_OFFSET
does).

A reader that follows a queue never goes back and never skips. "Nothing new" leaves it where it is.
"Beyond the end" does so too: the answer comes from a node that lags, or from a new master that does
not know yet how far its log is confirmed. Only if the master stays with it for
`BEYOND_END_SECONDS` the reader ends with `OffsetBeyondEndError`. "Not here any more" moves a reader
on only by the master's word: another node may have deleted earlier than the master, or may have a
file that is damaged.

A message that is damaged at the node that was asked is read from another one at once. If none has
it, a reader waits until it is healed, and says so once. Only one that has an end ends with
`MessageDamagedError`, after `DAMAGED_SECONDS`.

Offsets are committed at the master, and tried again while there is none. The next master may lack
what was committed last, so what this consumer has committed is compared with the new master's
offset when the master has changed, and raised there, never lowered.
"""

import enum
import itertools
from typing import Final, Literal

import msgspec

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.cursor import Cursor, check_damaged, has_to_wait, is_reset
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    MessageDamagedError,
    OffsetBeyondEndError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from tandem.client.flow import Flow, Pause
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.pull_answer import expression_type, passes_over, pull_result
from tandem.client.pull_elsewhere import pull_elsewhere
from tandem.client.queue_flow import (
    RETRIED,
    QueueBrokers,
    QueueRequest,
    decode,
    expect_success,
    may_pass,
)
from tandem.client.results import MessageQueue, PullResult, PullStatus
from tandem.client.routes import lacks_masters
from tandem.wire.message import MessageExt
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

FENCED_SUSPEND_MS: Final = 2_000
"""Longest that a reader lets a broker of a fenced group hold a pull. A frozen one is found out when
the answer is overdue, so this bounds how long a reader hangs on it: 7 s. It costs an idle reader a
request for each queue every 2 s."""

BEYOND_END_SECONDS: Final = 15.0
"""How long a master may say that a reader is beyond the end: longer than a switch."""

RETRY_SECONDS: Final = 1.0
"""Pause of a reader that follows a topic after a failure (RocketMQ: 3 s)."""

EARLIEST_OFFSET: Final = 0


class Start(enum.Enum):
    """Where a reader that has no offset begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    """At the group's offset; at the earliest message if the group has none."""


StartFrom = Literal["earliest", "latest", "committed"]
"""The same in words, as users say it."""


class Committed(msgspec.Struct, frozen=True):
    """What this consumer has committed of one queue, and the master that took it."""

    offset: int
    master: str


class Puller:
    """Reads for one consumer. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore, group: str) -> None:
        self._core = core
        self._brokers = QueueBrokers(core)
        self._group = group
        self._committed: dict[MessageQueue, Committed] = {}

    def fetch_message_queues(
        self, topic: str, timeout_seconds: float = SWITCH_SECONDS
    ) -> Flow[list[MessageQueue]]:
        """Return the readable queues of a topic, freshly asked for.

        A route without a master may be old or lack queues, so it only counts when the time is over.
        """
        end = self._core.clock() + timeout_seconds
        for retries_count in itertools.count():
            pause = retry_pause_seconds(retries_count)
            is_last = self._core.clock() + pause >= end
            self._core.suspect_route(topic)
            try:
                deadline = min(end, self._brokers.deadline())
                route = yield from self._core.route(topic, deadline)
                if is_last or not lacks_masters(route.data):
                    return list(route.subscribe_queues)
            except RouteNotFoundError as error:
                if is_last or not error.may_pass:
                    raise
            yield Pause(pause)
        raise AssertionError

    def min_offset(self, queue: MessageQueue) -> Flow[int]:
        """Return the offset of the oldest message that the master still has."""
        return (yield from self._ask_min_offset(queue, SWITCH_SECONDS))[0]

    def max_offset(self, queue: MessageQueue, timeout_seconds: float = SWITCH_SECONDS) -> Flow[int]:
        """Return the offset of the next message to be written, by the master's word."""
        ext = QueueRequestHeader(queue.topic, queue.queue_id, only_master=True)
        code = RequestCode.GET_MAX_OFFSET
        return (yield from self._ask_offset(queue, code, ext, timeout_seconds))[0]

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> Flow[int]:
        """Return the first offset stored at or after a time; the max offset if there is none."""
        keys = (queue.topic, queue.queue_id, timestamp_ms)
        ext = SearchOffsetRequestHeader(*keys, only_master=True)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return (yield from self._ask_offset(queue, code, ext, SWITCH_SECONDS))[0]

    def fetch_consume_offset(
        self, queue: MessageQueue, timeout_seconds: float = SWITCH_SECONDS
    ) -> Flow[int | None]:
        """Return the group's offset, None if the master knows none.

        It is waited for: another node may not have the last commits yet.
        """
        yield from self._raise_committed(queue)
        ext = QueryConsumerOffsetRequestHeader(
            self._group, queue.topic, queue.queue_id, set_zero_if_not_found=False
        )
        answer, address = yield from self._brokers.ask_master(
            queue, RequestCode.QUERY_CONSUMER_OFFSET, ext, timeout_seconds
        )
        return _offset_in(answer, address)

    def update_consume_offset(
        self, queue: MessageQueue, offset: int, timeout_seconds: float = SWITCH_SECONDS
    ) -> Flow[None]:
        """Set the group's offset: that of the next message to consume."""
        ext = UpdateConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id, offset)
        answer, address = yield from self._brokers.ask_master(
            queue, RequestCode.UPDATE_CONSUMER_OFFSET, ext, timeout_seconds
        )
        expect_success(answer, address)
        self._committed[queue] = Committed(offset, address)

    def forget(self, queue: MessageQueue) -> None:
        """Leave a queue to others, or to an operator: do not raise its offset any more."""
        self._committed.pop(queue, None)

    def _raise_committed(self, queue: MessageQueue) -> Flow[None]:
        """Tell a master that has taken over since what this consumer has committed."""
        committed = self._committed.get(queue)
        if committed is None or (route := self._core.routes.get(queue.topic)) is None:
            return
        master = route.addresses(queue.broker_name).get(MASTER_ID, committed.master)
        if master == committed.master or self._brokers.is_to_be_avoided(master):
            return
        keys = (self._group, queue.topic, queue.queue_id)
        query = QueryConsumerOffsetRequestHeader(*keys, set_zero_if_not_found=False)
        update = UpdateConsumerOffsetRequestHeader(*keys, committed.offset)
        try:
            answer = yield from self._brokers.call(
                queue, master, RequestCode.QUERY_CONSUMER_OFFSET, query, REQUEST_TIMEOUT_SECONDS
            )
            if (_offset_in(answer, master) or 0) < committed.offset:
                answer = yield from self._brokers.call(
                    queue,
                    master,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    update,
                    REQUEST_TIMEOUT_SECONDS,
                )
                expect_success(answer, master)
        except ClientError:
            # Not what was asked for now; the next pull tries again.
            return
        self._committed[queue] = Committed(committed.offset, master)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int,
        tags: str,
        suspend_timeout_ms: int,
    ) -> Flow[PullResult]:
        """Pull once; see `Pulls.pull`."""
        result, _ = yield from self._pull(queue, offset, max_msg_nums, tags, suspend_timeout_ms)
        return result

    def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int,
        tags: str,
        suspend_timeout_ms: int,
    ) -> Flow[tuple[PullResult, str]]:
        """Pull once; return also the address that answered."""
        yield from self._raise_committed(queue)
        ext = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_msg_nums,
            sys_flag=PULL_FLAG_SUBSCRIPTION | PULL_FLAG_SUSPEND * (suspend_timeout_ms > 0),
            commit_offset=0,
            suspend_timeout_millis=suspend_timeout_ms,
            sub_version=0,
            subscription=str(tags),
            expression_type=expression_type(tags),
            broker_name=queue.broker_name,
        )
        # The broker looks every few seconds for pulls whose time is over, hence twice the pause.
        seconds = REQUEST_TIMEOUT_SECONDS + 2 * suspend_timeout_ms / 1000
        answer, address = yield from self._brokers.ask(
            queue, RequestCode.PULL_MESSAGE, ext, seconds
        )
        try:
            result = pull_result(answer, address, queue.topic, queue.queue_id, tags, offset)
        except MessageDamagedError as error:
            return (yield from pull_elsewhere(self._core, self._brokers, queue, ext, error))
        if passes_over(result, tags, offset):
            result = yield from self._checked_by_master(queue, offset, result, address)
        return result, address

    def _checked_by_master(
        self, queue: MessageQueue, offset: int, result: PullResult, address: str
    ) -> Flow[PullResult]:
        """Return an answer that passes over messages, or one that does not, if the master has them.

        That says OFFSET_ILLEGAL and stays at `offset`.
        """
        lowest, master = offset, ""
        try:
            lowest, master = yield from self._ask_min_offset(queue, REQUEST_TIMEOUT_SECONDS)
        except ClientError as error:
            if not may_pass(error):
                raise
        if master == address:
            return result
        return msgspec.structs.replace(
            result, status=PullStatus.OFFSET_ILLEGAL, next_begin_offset=max(offset, lowest)
        )

    def open_cursors(
        self,
        topic: str,
        start: Start,
        tags: str,
        *,
        until_end: bool,
        timeout_seconds: float = SWITCH_SECONDS,
    ) -> Flow[list[Cursor]]:
        """Return where a reader of all queues of `topic` begins, and where it ends.

        Tries again for `timeout_seconds` what passes, such as a group that is between two masters.

        Raises:
            ClientError: RouteNotFoundError also if there is no master to ask, by then, where to
                begin or to end.
        """
        end = self._core.clock() + timeout_seconds
        for retries_count in itertools.count():
            try:
                return (yield from self._cursors(topic, start, tags, end, until_end=until_end))
            except ClientError as error:
                pause = retry_pause_seconds(retries_count)
                if not may_pass(error) or self._core.clock() + pause >= end:
                    raise
            yield Pause(pause)
        raise AssertionError

    def _cursors(
        self, topic: str, start: Start, tags: str, deadline: float, *, until_end: bool
    ) -> Flow[list[Cursor]]:
        clock = self._core.clock
        queues = yield from self.fetch_message_queues(topic, deadline - clock())
        cursors = []
        for queue in queues:
            offset = yield from self._start_offset(queue, start, deadline)
            end = None
            if until_end:
                end = yield from self.max_offset(queue, deadline - clock())
            cursors.append(Cursor(queue, offset, end, tags))
        return cursors

    def group_offset(self, queue: MessageQueue, start: Start | int) -> Flow[int]:
        """Return where a group goes on in a queue; where it begins if it never read it.

        Args:
            queue: where.
            start: EARLIEST, LATEST, or the milliseconds since 1970 of the first message.
        """
        committed = yield from self.fetch_consume_offset(queue)
        if committed is not None:
            return committed
        offset = yield from self.first_offset(queue, start)
        # At once: a member that dies now must not begin later next time, past messages.
        yield from self.update_consume_offset(queue, offset)
        return offset

    def first_offset(self, queue: MessageQueue, start: Start | int) -> Flow[int]:
        """Return where a reader begins that knows no offset; see `group_offset`."""
        if isinstance(start, int):
            return (yield from self.search_offset(queue, start))
        deadline = self._core.clock() + SWITCH_SECONDS
        return (yield from self._start_offset(queue, start, deadline))

    def _start_offset(self, queue: MessageQueue, start: Start, deadline: float) -> Flow[int]:
        seconds = deadline - self._core.clock()
        if start is Start.LATEST:
            return (yield from self.max_offset(queue, seconds))
        if start is Start.COMMITTED:
            committed = yield from self.fetch_consume_offset(queue, seconds)
            if committed is not None:
                return committed
        return (yield from self._earliest_offset(queue))

    def _earliest_offset(self, queue: MessageQueue) -> Flow[int]:
        """Return the master's first offset; 0 while another node answers in its place.

        That one may have deleted more than the master. The first pull corrects a 0.
        """
        ext = QueueRequestHeader(queue.topic, queue.queue_id, only_master=True)
        answer, address = yield from self._brokers.ask(queue, RequestCode.GET_MIN_OFFSET, ext)
        master = self._core.routes[queue.topic].addresses(queue.broker_name).get(MASTER_ID)
        if address != master or answer.code in RETRIED:
            return EARLIEST_OFFSET
        return decode(expect_success(answer, address), OffsetResponseHeader, address).offset

    def read(
        self, cursor: Cursor, max_msg_nums: int, suspend_timeout_ms: int
    ) -> Flow[list[MessageExt]]:
        """Pull at `cursor` and move it on. Waits out what passes; then nothing is read.

        Raises:
            BrokerError: a refusal that does not pass by itself.
            CompressedBodyError: a body that this client cannot read.
            MessageDamagedError: no node has the next message whole, and the reader has an end.
            OffsetBeyondEndError: the queue has become shorter than what was read from it.
        """
        pulled = yield from self._pull_or_wait(cursor, max_msg_nums, suspend_timeout_ms)
        if pulled is None:
            return []
        result, address = pulled
        if cursor.follows_resets and is_reset(cursor, result):
            cursor.offset = result.next_begin_offset
            cursor.was_reset = True
            self.forget(cursor.queue)
            return []
        if result.next_begin_offset < cursor.offset:
            self._check_beyond_end(cursor, result, address)
        else:
            cursor.beyond_end_since = None
        if has_to_wait(cursor, result):
            yield Pause(RETRY_SECONDS)
            return []
        if result.status is PullStatus.NO_NEW_MSG:
            return []
        cursor.offset = result.next_begin_offset
        end = cursor.end
        if end is None:
            return result.messages
        return [message for message in result.messages if message.queue_offset < end]

    def _pull_or_wait(
        self, cursor: Cursor, max_msg_nums: int, suspend_timeout_ms: int
    ) -> Flow[tuple[PullResult, str] | None]:
        """Pull at `cursor`; None after a pause if that failed for now."""
        suspend_timeout_ms = self._suspend_ms(cursor, suspend_timeout_ms)
        try:
            pulled = yield from self._pull(
                cursor.queue, cursor.offset, max_msg_nums, cursor.tags, suspend_timeout_ms
            )
        except (ConnectionLostError, RequestTimeoutError, RouteNotFoundError):
            pass
        except MessageDamagedError as error:
            check_damaged(cursor, error, self._core.clock())
        except BrokerError as error:
            if error.code not in RETRIED:
                raise
        else:
            cursor.damaged_since = None
            return pulled
        yield Pause(RETRY_SECONDS)
        return None

    def _suspend_ms(self, cursor: Cursor, wanted_ms: int) -> int:
        """How long a broker may hold the next pull of a reader."""
        if cursor.end is not None:
            return 0
        route = self._core.routes.get(cursor.queue.topic)
        is_fenced = route is not None and route.is_fenced(cursor.queue.broker_name)
        return min(wanted_ms, FENCED_SUSPEND_MS) if is_fenced else wanted_ms

    def _check_beyond_end(self, cursor: Cursor, result: PullResult, address: str) -> None:
        """A broker says that the queue ends before `cursor`: stay, but not for ever."""
        queue = cursor.queue
        route = self._core.routes[queue.topic]
        self._core.suspect_route(queue.topic)
        if route.addresses(queue.broker_name).get(MASTER_ID) != address:
            return
        now = self._core.clock()
        if cursor.beyond_end_since is None:
            cursor.beyond_end_since = now
        if now - cursor.beyond_end_since >= BEYOND_END_SECONDS:
            name = f"queue {queue.queue_id} of topic {queue.topic!r} at {queue.broker_name}"
            raise OffsetBeyondEndError(name, cursor.offset, result.max_offset)

    def _ask_min_offset(self, queue: MessageQueue, timeout_seconds: float) -> Flow[tuple[int, str]]:
        """Return the master's first offset, and the master's address."""
        ext = QueueRequestHeader(queue.topic, queue.queue_id, only_master=True)
        return self._ask_offset(queue, RequestCode.GET_MIN_OFFSET, ext, timeout_seconds)

    def _ask_offset(
        self, queue: MessageQueue, code: RequestCode, ext: QueueRequest, timeout_seconds: float
    ) -> Flow[tuple[int, str]]:
        answer, address = yield from self._brokers.ask_master(queue, code, ext, timeout_seconds)
        header = decode(expect_success(answer, address), OffsetResponseHeader, address)
        return header.offset, address


def _offset_in(answer: RemotingCommand, address: str) -> int | None:
    """A group's offset, None if the broker knows none."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return decode(expect_success(answer, address), OffsetResponseHeader, address).offset
