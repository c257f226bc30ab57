"""Gathers what the nodes of a cluster know of one message: `Admin.why`.

    all nodes             status of the group, runtime, epochs: where each log begins and ends
    one of each broker    the index: the message, its retries, dead letters, halves, delays, traces
    all nodes of a group  the record by its place: who has it
    one of each broker    who reads the topic, and how far each group is

Nothing is waited for: a node that does not answer is noted as a gap and not asked again, since this
is asked when something is wrong. A broker name is asked at its master first, else at another node.
"""

from collections.abc import Callable, Iterable
from typing import Final

from tandem.client.admin_calls import AdminCalls
from tandem.client.dead_letter import key_again, origin_topic
from tandem.client.errors import ClientError
from tandem.client.flow import Flow
from tandem.client.identity import wall_clock_ms
from tandem.client.life_groups import LifeGroups
from tandem.client.life_nodes import LifeNodes, Nodes
from tandem.client.life_waits import LifeWaits
from tandem.client.topic_admin import TopicAdministration
from tandem.life.evidence import Copy, Evidence, Look
from tandem.life.lives import LIVES_MAX, fits, why_of
from tandem.life.made_id import offset_id_of
from tandem.life.pop_retries import pop_retry_topics
from tandem.life.records import Record, Role, records_of, role_of
from tandem.life.result import Why
from tandem.life.words import list_words
from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import PROPERTY_FIRST_POP_TIME, PROPERTY_UNIQUE_KEY
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import (
    RMQ_SYS_TRANS_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    dlq_topic,
    retry_topic,
)

FOUND_MAX: Final = 64
"""Of a key in a topic: what a broker is asked for at most."""

TOPICS_SEARCHED_MAX: Final = 200
"""Where no topic is named: each is a request to every broker."""

TIME_MAX_MS: Final = (1 << 63) - 1

WAITING_TOPICS: Final = (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)


class LifeAdministration:
    """Asks about the life of a message for one administrator. Flows only."""

    def __init__(
        self,
        calls: AdminCalls,
        topics: TopicAdministration,
        wall_clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._calls = calls
        self._topics = topics
        self._wall_clock_ms = wall_clock

    def why(self, message: str, topic: str = "") -> Flow[Why]:
        """Return the life of a message as the nodes know it, each finding with what shows it.

        `message` is its unique key, its offset id, or one of its keys. Without a topic a key is
        looked for in all topics, up to 200 of them. That nothing is found is no error: the answer
        says where was looked, and what that proves.

        Raises:
            RouteNotFoundError: no name server answers.
        """
        evidence = Evidence(
            message=message, topic=topic, now_ms=self._wall_clock_ms(), is_cluster=True
        )
        nodes = yield from LifeNodes(self._calls).gather(evidence)
        search = _Search(nodes, evidence)
        yield from self._first(search, message, topic)
        families = search.families(message)
        evidence.families_left_out = max(0, len(families) - LIVES_MAX)
        families = families[-LIVES_MAX:]
        evidence.copies = [each for each in evidence.copies if each.family in families]
        for family in families:
            yield from search.follow(family)
        yield from search.see_who_has_it()
        return why_of(evidence)

    def _first(self, search: "_Search", message: str, topic: str) -> Flow[None]:
        """Look for the message itself."""
        yield from search.by_place(message)
        topics = [topic] if topic else []
        search.evidence.topics_known |= set(topics)
        if not topics and search.is_popped():
            # Of which of these topics it is, its name alone does not say.
            search.evidence.topics_known |= set((yield from self._all_topics(search.evidence)))
        if not topics and not search.families(message):
            topics = yield from self._all_topics(search.evidence)
        for each in topics:
            yield from search.by_key(each, message)
        if not search.families(message):
            # It may wait for its time, or be the half of a transaction: then under another topic.
            for each in WAITING_TOPICS:
                yield from search.by_key(each, message)

    def _all_topics(self, evidence: Evidence) -> Flow[list[str]]:
        try:
            names = yield from self._topics.names(of_system=False)
        except ClientError as error:
            evidence.gap("all topics", str(error), "name it with --topic")
            return []
        if len(names) > TOPICS_SEARCHED_MAX:
            evidence.gap(
                "the topics beyond the first ones",
                f"there are {len(names)}, and each is asked for on its own",
                "name it with --topic",
            )
        return names[:TOPICS_SEARCHED_MAX]


class _Search:
    """Looks for the records of one question, and keeps what it finds in the evidence."""

    def __init__(self, nodes: Nodes, evidence: Evidence) -> None:
        self.evidence = evidence
        self._nodes = nodes
        self._asked: set[tuple[str, str]] = set()
        self._groups = LifeGroups(nodes, evidence)
        self._waits = LifeWaits(nodes, evidence)
        self._groups_asked: set[str] = set()

    def families(self, message: str) -> list[str]:
        """Return the messages that fit what was asked for, the newest last."""
        copies = [each for each in self.evidence.copies if fits(each, message)]
        copies.sort(key=lambda each: each.message.store_timestamp_ms)
        return list(dict.fromkeys(each.family for each in copies))

    def is_popped(self) -> bool:
        """Whether a retry was found that came back to a group that pops."""
        return any(PROPERTY_FIRST_POP_TIME in c.message.properties for c in self.evidence.copies)

    def by_place(self, message: str) -> Flow[None]:
        """Ask every node for the record that an offset id names."""
        wanted = offset_id_of(message)
        if wanted is None:
            return
        found = 0
        for broker in sorted(self._nodes.brokers):
            for copy in (yield from self._at(broker, wanted.offset)):
                if copy.message.offset_msg_id == message.upper():
                    found += self._add(copy)
                else:
                    self.evidence.others.append(copy)
        self.evidence.looks.append(
            Look(
                where="every node that answers",
                how=f"{RequestCode.VIEW_MESSAGE_BY_ID.name}, offset {wanted.offset}",
                found=found,
            )
        )

    def _at(self, broker: str, offset: int) -> Flow[list[Copy]]:
        """Return the record at an offset as each node of a broker name has it."""
        code, header = RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset)
        addresses = self._nodes.addresses(broker)
        answers = yield from self._nodes.ask([(each, code, header) for each in addresses])
        copies = []
        for address, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, ClientError):
                self.evidence.gap(f"offset {offset} at {address}", str(answer))
            elif answer.code == ResponseCode.NO_PERMISSION:
                self.evidence.gap(f"offset {offset} at {address}", answer.remark or "not allowed")
            elif answer.code == ResponseCode.SUCCESS:
                copies += self._copies(broker, address, answer, code)
        return copies

    def by_key(self, topic: str, key: str) -> Flow[None]:
        """Ask the index of every broker for a unique key, or one of the keys, in a topic."""
        if (topic, key) in self._asked or not _can_be_asked(topic, key):
            return
        self._asked.add((topic, key))
        code = RequestCode.QUERY_MESSAGE
        answers = yield from self._nodes.ask_each(
            self.evidence,
            f"the index of topic {topic}",
            code,
            QueryMessageRequestHeader(topic, key, FOUND_MAX, 0, TIME_MAX_MS),
            ResponseCode.QUERY_NOT_FOUND,
            ResponseCode.TOPIC_NOT_EXIST,
        )
        found = 0
        what = f"the index of topic {topic} at "
        is_whole = not any(gap.what.startswith(what) for gap in self.evidence.gaps)
        for answer in answers:
            for copy in self._copies(answer.broker_name, answer.address, answer.command, code):
                # Hashes are in an index, so the keys are compared here.
                if copy.message.topic == topic and key in _keys(copy.message):
                    found += self._add(copy)
        self.evidence.looks.append(
            Look(
                where=f"topic {topic}",
                how=f"{code.name} by key at {list_words(sorted(self._nodes.brokers))}",
                found=found,
                is_complete=is_whole
                and all(log.is_indexed is not False for log in self.evidence.nodes),
                covers="all confirmed messages that are in the index",
            )
        )

    def _copies(
        self, broker: str, address: str, command: RemotingCommand, code: RequestCode
    ) -> list[Copy]:
        try:
            messages = decode_messages(command.body)
        except MalformedMessageError as error:
            self.evidence.gap(f"an answer of {address}", f"it does not parse: {error}")
            return []
        return [
            Copy(
                node=self._nodes.name_of(address),
                broker=broker,
                source=f"{address}, {code.name}, offset {each.physical_offset}",
                message=each,
                is_sound=_is_sound(each),
            )
            for each in messages
        ]

    def _add(self, copy: Copy) -> int:
        known = any(
            each.node == copy.node and each.message == copy.message for each in self.evidence.copies
        )
        if not known:
            self.evidence.copies.append(copy)
        return not known

    def follow(self, family: str) -> Flow[None]:
        """Look for all records of one message, and for what is done with them."""
        own = self._of(family)
        topics = {_topic_of(each) for each in own} - {""}
        key = next((k for each in own if (k := _unique_key(each.message))), "")
        if key:
            for topic in [*sorted(topics), *WAITING_TOPICS]:
                yield from self.by_key(topic, key)
        records = self._of(family)
        topics = {_topic_of(each) for each in records} - {""}
        groups = {each.group for each in records if each.group}
        for topic in sorted(topics):
            groups |= yield from self._groups.readers(topic)
        for group in sorted(groups):
            if key:
                for topic in (retry_topic(group), dlq_topic(group), *_popped(group, topics)):
                    yield from self.by_key(topic, key)
            if group not in self._groups_asked:
                self._groups_asked.add(group)
                yield from self._groups.gather(group, topics)
        yield from self._waits.gather(self._of(family))
        yield from self._resent(self._of(family))
        if key:
            yield from self._waits.traces(key)

    def _resent(self, records: Iterable[Record]) -> Flow[None]:
        """Look whether dead letters were sent again: the key of the new message is known."""
        for letter in [each.message for each in records if each.role is Role.DEAD]:
            topic = origin_topic(letter)
            if topic:
                yield from self.by_key(topic, key_again(letter))

    def _of(self, family: str) -> list[Record]:
        copies = [each for each in self.evidence.copies if each.family == family]
        return records_of(copies, self.evidence.topics_known)

    def see_who_has_it(self) -> Flow[None]:
        """Ask each node of a group for each record that was found."""
        for record in records_of(self.evidence.copies):
            for copy in (yield from self._at(record.broker, record.message.physical_offset)):
                if copy.message == record.message:
                    self._add(copy)


def _popped(group: str, topics: Iterable[str]) -> list[str]:
    return [each for topic in sorted(topics) for each in pop_retry_topics(group, topic)]


def _topic_of(record: Record) -> str:
    """Return the topic that a record was sent to first, if it says so and is one of users."""
    topic = record.origin_topic
    return topic if role_of(topic) is Role.ORIGINAL else ""


def _keys(message: MessageExt) -> list[str]:
    return [_unique_key(message), *message.keys.split(" ")]


def _unique_key(message: MessageExt) -> str:
    return message.properties.get(PROPERTY_UNIQUE_KEY, "")


def _can_be_asked(topic: str, key: str) -> bool:
    """Whether a request can carry both: RocketMQ's header fields are limited to 65,535 bytes."""
    return bool(topic and key) and len(topic.encode()) + len(key.encode()) < 32_768


def _is_sound(message: MessageExt) -> bool:
    return not message.body or crc32(message.body) == message.body_crc
