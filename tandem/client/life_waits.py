"""Finds out for `Admin.why` what waits: which halves have ended, how far delays are; and traces.

    RMQ_SYS_TRANS_OP_HALF_TOPIC    each record: queue offsets of halves that have ended
    GET_ALL_DELAY_OFFSET           the next queue offset of each delay level
    RMQ_SYS_TRACE_TOPIC            what clients wrote about a message, by its unique key

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl.getOpMessage, TraceDataEncoder.
"""

from typing import Final

import msgspec

from tandem.client.admin_calls import BrokerAnswer, decode_body
from tandem.client.errors import ClientError, ConnectionLostError
from tandem.client.flow import Flow
from tandem.client.group_admin import TOOLS_GROUP
from tandem.client.life_nodes import Nodes, remedy_for
from tandem.client.pull_answer import ALL_TAGS, pull_result
from tandem.life.evidence import DelayAt, Evidence, HalfEnd, HalvesRead
from tandem.life.records import Record, Role
from tandem.life.traces import marks_of
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL, DelayLevels
from tandem.wire.ended_halves import ended_halves
from tandem.wire.errors import MalformedFrameError, MalformedMessageError
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import UNIQUE_KEY_QUERY, RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    Body,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RMQ_SYS_TRANS_OP_HALF_TOPIC, TRACE_TOPIC

OP_QUEUE_ID: Final = 0
MESSAGES_PER_PULL: Final = 32
PULLS_MAX: Final = 200
"""Of records about ended halves; they are small, and each may name many halves."""

TRACES_MAX: Final = 64
TIME_MAX_MS: Final = (1 << 63) - 1


class _DelayOffsets(Body, frozen=True):
    offset_table: dict[int, int] = msgspec.field(default_factory=dict)


class LifeWaits:
    """Asks what a message waits for, for one question."""

    def __init__(self, nodes: Nodes, evidence: Evidence) -> None:
        self._nodes = nodes
        self._evidence = evidence
        self._delays_asked: set[str] = set()
        self._ops_read: set[str] = set()

    def gather(self, records: list[Record]) -> Flow[None]:
        """Ask what the records of one message make one want to know."""
        for record in records:
            if record.role in (Role.DELAYED, Role.TIMER):
                yield from self._delays(record.broker)
        halves = [each for each in records if each.role is Role.HALF]
        if halves and halves[-1].broker not in self._ops_read:
            self._ops_read.add(halves[-1].broker)
            yield from self._ends(halves[-1])

    def _delays(self, broker: str) -> Flow[None]:
        """Ask for the levels of a broker, and how far each is delivered."""
        if broker in self._delays_asked:
            return
        self._delays_asked.add(broker)
        code = RequestCode.GET_ALL_DELAY_OFFSET
        answer = yield from self._nodes.ask_broker(broker, code, None)
        if isinstance(answer, ClientError):
            what = f"how far delayed messages of {broker} are"
            self._evidence.gap(what, str(answer), remedy_for(answer))
            return
        settings = self._nodes.settings.get(answer.address, {})
        levels = settings.get("messageDelayLevel", "")
        try:
            table = DelayLevels(levels or MESSAGE_DELAY_LEVEL)
            offsets = decode_body(answer.command, _DelayOffsets, answer.address).offset_table
        except (ValueError, ConnectionLostError) as error:
            self._evidence.gap(f"how far delayed messages of {broker} are", str(error))
            return
        self._evidence.delays.append(
            DelayAt(
                broker=broker,
                node="",
                source=f"{answer.address}, {code.name}",
                delays_ms=table.delays_ms,
                is_default=not levels,
                next_offsets=offsets,
            )
        )

    def _ends(self, half: Record) -> Flow[None]:
        """Read which halves of a broker have ended since one was stored."""
        broker, offset = half.broker, 0
        header = SearchOffsetRequestHeader(
            RMQ_SYS_TRANS_OP_HALF_TOPIC, OP_QUEUE_ID, half.message.store_timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = yield from self._nodes.ask_broker(broker, code, header)
        if isinstance(answer, ClientError):
            self._note_ends(broker, is_complete=False)
            return
        try:
            offset = answer.command.decode_header(OffsetResponseHeader).offset
        except MalformedFrameError:
            self._note_ends(broker, is_complete=False)
            return
        for _ in range(PULLS_MAX):
            pulled = yield from self._pull(broker, offset)
            if pulled is None:
                self._note_ends(broker, is_complete=False)
                return
            messages, following = pulled
            for message in messages:
                self._note_ended(broker, message)
            if following <= offset or not messages:
                self._note_ends(broker, is_complete=True)
                return
            offset = following
        self._note_ends(broker, is_complete=False)

    def _note_ends(self, broker: str, *, is_complete: bool) -> None:
        self._evidence.halves_read.append(
            HalvesRead(broker=broker, node="", is_complete=is_complete)
        )

    def _note_ended(self, broker: str, message: MessageExt) -> None:
        self._evidence.ends += [
            HalfEnd(
                broker=broker,
                node="",
                half_queue_offset=offset,
                at_ms=message.store_timestamp_ms,
                source=f"{RMQ_SYS_TRANS_OP_HALF_TOPIC}, queue offset {message.queue_offset}",
            )
            for offset in ended_halves(message)
        ]

    def _pull(self, broker: str, offset: int) -> Flow[tuple[list[MessageExt], int] | None]:
        """Return some records about ended halves, and the offset after them; None if refused."""
        topic = RMQ_SYS_TRANS_OP_HALF_TOPIC
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=topic,
            queue_id=OP_QUEUE_ID,
            queue_offset=offset,
            max_msg_nums=MESSAGES_PER_PULL,
            sys_flag=PULL_FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=ALL_TAGS,
            expression_type="TAG",
            broker_name=broker,
        )
        accepted = {
            ResponseCode.SUCCESS.value,
            ResponseCode.PULL_NOT_FOUND.value,
            ResponseCode.PULL_RETRY_IMMEDIATELY.value,
            ResponseCode.PULL_OFFSET_MOVED.value,
        }
        answer = yield from self._nodes.ask_broker(
            broker, RequestCode.PULL_MESSAGE, header, accepted=accepted
        )
        if isinstance(answer, ClientError):
            self._evidence.gap(f"topic {topic} at {broker}", str(answer), remedy_for(answer))
            return None
        try:
            result = pull_result(
                answer.command, answer.address, topic, OP_QUEUE_ID, ALL_TAGS, offset
            )
        except ClientError as error:
            self._evidence.gap(f"topic {topic} at {broker}", str(error))
            return None
        return result.messages, result.next_begin_offset

    def traces(self, key: str) -> Flow[None]:
        """Read what clients wrote about a message. Few clusters have that topic, or need it."""
        code = RequestCode.QUERY_MESSAGE
        header = QueryMessageRequestHeader(TRACE_TOPIC, key, TRACES_MAX, 0, TIME_MAX_MS)
        fields = RemotingCommand(code, ext=header).ext_fields() | {UNIQUE_KEY_QUERY: "false"}
        messages: list[MessageExt] = []
        for broker in sorted(self._nodes.brokers):
            answer = yield from self._nodes.ask_broker(broker, code, fields)
            if isinstance(answer, BrokerAnswer):
                try:
                    messages += decode_messages(answer.command.body)
                except MalformedMessageError:
                    continue
        self._evidence.traces += marks_of(messages, key)
