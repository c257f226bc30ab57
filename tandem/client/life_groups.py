"""Finds out for `Admin.why` which consumer groups read a topic, and how far each of them is."""

from typing import Final

from tandem.client.admin_calls import BrokerAnswer, decode_body
from tandem.client.admin_results import GroupQueue
from tandem.client.errors import ClientError, ConnectionLostError
from tandem.client.flow import Flow
from tandem.client.group_admin import is_group_of_system, queues_of
from tandem.client.life_nodes import Nodes
from tandem.life.evidence import Evidence, GroupAt, QueueAt
from tandem.life.pop_retries import pop_retry_topics
from tandem.wire.admin_headers import ClientRequestHeader, ConsumerConnection
from tandem.wire.errors import MalformedFrameError
from tandem.wire.heartbeat import MESSAGE_MODELS
from tandem.wire.queue_map import ConsumeOffsets, RunningInfo, by_queue
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GroupRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import BodyT
from tandem.wire.stats_requests import ConsumeStatsRequestHeader, GroupList, TopicRequestHeader
from tandem.wire.system_topics import retry_topic

BROADCASTING: Final = MESSAGE_MODELS[0]
CLIENTS_ASKED_MAX: Final = 64
"""Of a group: who reads which queue is asked of its clients, through the broker."""

Queue = tuple[str, str, int]


class LifeGroups:
    """Asks about groups for one question."""

    def __init__(self, nodes: Nodes, evidence: Evidence) -> None:
        self._nodes = nodes
        self._evidence = evidence

    def readers(self, topic: str) -> Flow[set[str]]:
        """Return the groups that read a topic, or have an offset in it."""
        answers = yield from self._nodes.ask_each(
            self._evidence,
            f"who reads topic {topic}",
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            TopicRequestHeader(topic),
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.TOPIC_NOT_EXIST,
        )
        found: set[str] = set()
        for answer in answers:
            try:
                found.update(answer.body(GroupList).group_list)
            except ConnectionLostError as error:
                self._evidence.gap(f"who reads topic {topic} at {answer.broker_name}", str(error))
                continue
            self._evidence.readers_known.add(topic)
        return {group for group in found - {topic} if not is_group_of_system(group)}

    def gather(self, group: str, topics: set[str]) -> Flow[None]:
        """Ask how far a group is in some topics and in its retries, and who its members are."""
        popped = [each for topic in topics for each in pop_retry_topics(group, topic)]
        wanted = {*topics, retry_topic(group), *popped}
        connected, sources = yield from self._connected(group)
        queues, places = yield from self._queues(group)
        readers = yield from self._clients_by_queue(group, connected)
        members = {each.client_id for body, _ in connected.values() for each in body.connection_set}
        subscriptions = {
            topic: each.sub_string
            for body, _ in connected.values()
            for topic, each in body.subscription_table.items()
        }
        models = {body.message_model for body, _ in connected.values()}
        self._evidence.groups.append(
            GroupAt(
                group=group,
                source="; ".join(dict.fromkeys([*places, *sources])) or "no broker",
                queues=tuple(_queue_at(each, readers) for each in queues if each.topic in wanted),
                members_count=len(members),
                is_broadcasting=BROADCASTING in models,
                subscriptions=subscriptions,
            )
        )

    def _connected(
        self, group: str
    ) -> Flow[tuple[dict[str, tuple[ConsumerConnection, str]], list[str]]]:
        """Return what each broker knows of the members, with the address of the node."""
        answers = yield from self._nodes.ask_each(
            self._evidence,
            f"the members of group {group}",
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GroupRequestHeader(group),
            ResponseCode.CONSUMER_NOT_ONLINE,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
        found, sources = {}, []
        for answer in answers:
            body = self._body(answer, ConsumerConnection, f"the members of group {group}")
            if body is not None:
                found[answer.broker_name] = body, answer.address
                sources.append(f"{answer.address}, {RequestCode.GET_CONSUMER_CONNECTION_LIST.name}")
        return found, sources

    def _queues(self, group: str) -> Flow[tuple[list[GroupQueue], list[str]]]:
        answers = yield from self._nodes.ask_each(
            self._evidence,
            f"the offsets of group {group}",
            RequestCode.GET_CONSUME_STATS,
            ConsumeStatsRequestHeader(group),
            ResponseCode.CONSUMER_NOT_ONLINE,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
        queues: list[GroupQueue] = []
        sources = []
        for answer in answers:
            body = self._body(answer, ConsumeOffsets, f"the offsets of group {group}")
            if body is not None:
                queues += queues_of([body], answer)
                sources.append(f"{answer.address}, {RequestCode.GET_CONSUME_STATS.name}")
        return queues, sources

    def _clients_by_queue(
        self, group: str, connected: dict[str, tuple[ConsumerConnection, str]]
    ) -> Flow[dict[Queue, str]]:
        """Return who reads which queue, of the clients that say so."""
        clients = {
            each.client_id: address
            for body, address in connected.values()
            for each in body.connection_set
        }
        asked = sorted(clients.items())[:CLIENTS_ASKED_MAX]
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        answers = yield from self._nodes.ask_clients(
            [
                (address, code, ClientRequestHeader(group, client_id, jstack_enable=False))
                for client_id, address in asked
            ]
        )
        readers = {}
        for (client_id, address), answer in zip(asked, answers, strict=True):
            if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
                continue
            try:
                table = by_queue(decode_body(answer, RunningInfo, address).mq_table)
            except (MalformedFrameError, ConnectionLostError):
                continue  # what a client says of itself is not needed
            for queue, _ in table:
                readers[queue.topic, queue.broker_name, queue.queue_id] = client_id
        return readers

    def _body(self, answer: BrokerAnswer, body_type: type[BodyT], what: str) -> BodyT | None:
        try:
            return answer.body(body_type)
        except ConnectionLostError as error:
            self._evidence.gap(f"{what} at {answer.broker_name}", str(error))
            return None


def _queue_at(queue: GroupQueue, readers: dict[Queue, str]) -> QueueAt:
    return QueueAt(
        topic=queue.topic,
        queue_id=queue.queue_id,
        committed=queue.consumer_offset,
        broker=queue.broker_name,
        pulled=queue.pull_offset,
        end=queue.broker_offset,
        last_consumed_ms=queue.last_consumed_timestamp_ms or 0,
        client_id=readers.get((queue.topic, queue.broker_name, queue.queue_id), ""),
    )
