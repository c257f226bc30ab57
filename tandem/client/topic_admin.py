"""The rules of administration of topics: what they are, and how they change.

Source: RocketMQ 5.3.3, DefaultMQAdminExtImpl.examineTopicStats, deleteTopicInBroker,
deleteTopicInNameServer.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType

from tandem.client.admin_calls import AdminCalls, BrokerAnswer, illegible
from tandem.client.admin_results import TopicAtBroker, TopicDescription, TopicQueue
from tandem.client.errors import BrokerError, ClientError, RouteCause, RouteNotFoundError
from tandem.client.flow import Flow
from tandem.wire.admin_headers import DeleteTopicRequestHeader
from tandem.wire.errors import MalformedFrameError
from tandem.wire.queue_map import TopicOffsets, by_queue
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import ClusterInfo, TopicList
from tandem.wire.stats_requests import GroupList, TopicRequestHeader
from tandem.wire.system_topics import (
    AUTO_CREATE_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)


class TopicAdministration:
    """Asks about topics for one administrator. Flows only."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def names(self, *, of_system: bool = True) -> Flow[list[str]]:
        """Return the names of all topics, sorted; without `of_system` those of users alone."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        lists = yield from self._calls.ask_name_servers(code, TopicList)
        topics = sorted({topic for each in lists for topic in each.topic_list})
        if of_system:
            return topics
        info = yield from self._calls.cluster_info()
        return [topic for topic in topics if not is_of_system(topic, info)]

    def describe(self, topic: str) -> Flow[TopicDescription]:
        """Return how a topic is set up, how full its queues are, and which groups read it.

        Raises:
            RouteNotFoundError: no broker has it.
        """
        configs = yield from self._configs(topic)
        info = yield from self._calls.cluster_info()
        groups = yield from self._groups(topic)
        brokers = [
            TopicAtBroker(
                broker_name=answer.broker_name,
                addresses=dict(
                    sorted(info.broker_addr_table[answer.broker_name].broker_addrs.items())
                    if answer.broker_name in info.broker_addr_table
                    else ()
                ),
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                order=config.order,
                attributes=config.attributes,
            )
            for answer, config in configs
        ]
        return TopicDescription(topic, brokers, (yield from self.queues(topic)), groups)

    def queues(self, topic: str) -> Flow[list[TopicQueue]]:
        """Return how full each queue of a topic is.

        Raises:
            RouteNotFoundError: no broker has it.
        """
        answers = yield from self._calls.each_broker(
            RequestCode.GET_TOPIC_STATS_INFO,
            TopicRequestHeader(topic),
            ResponseCode.TOPIC_NOT_EXIST,
        )
        if not answers:
            raise _unknown(topic)
        return [queue for answer in answers for queue in _queues(answer)]

    def alter(
        self,
        topic: str,
        *,
        queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str | None] = MappingProxyType({}),
        broker_names: Collection[str] | None = None,
    ) -> Flow[None]:
        """Change a topic at every master that has it; None leaves what is.

        An attribute that is None is taken away. `broker_names`: only at these.

        Raises:
            RouteNotFoundError: no broker has it.
        """
        configs = {
            answer.broker_name: config
            for answer, config in (yield from self._configs(topic))
            if broker_names is None or answer.broker_name in broker_names
        }
        text = ",".join(
            f"-{name}" if value is None else f"+{name}={value}"
            for name, value in attributes.items()
        )

        def header(broker_name: str) -> CreateTopicRequestHeader:
            config = configs[broker_name]
            return CreateTopicRequestHeader(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=queue_nums or config.read_queue_nums,
                write_queue_nums=queue_nums or config.write_queue_nums,
                perm=config.perm if perm is None else perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
                attributes=text or None,
            )

        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        yield from self._calls.each_master(topic, code, header, names=list(configs))

    def delete(self, topic: str, *, broker_names: Collection[str] | None = None) -> Flow[None]:
        """Delete a topic at all masters. Nobody can read its messages any more.

        `broker_names`: only at these; where it is left it goes on.

        Raises:
            RouteNotFoundError: no broker has it.
        """
        configs = yield from self._configs(topic)
        names = [answer.broker_name for answer, _ in configs]
        chosen = [name for name in names if broker_names is None or name in broker_names]
        if chosen == names:
            yield from self.forget(topic, names)
            return
        header = DeleteTopicRequestHeader(topic)
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        yield from self._calls.each_master(topic, code, lambda _: header, names=chosen)

    def forget(self, topic: str, names: list[str] | None = None) -> Flow[None]:
        """Delete a topic, whether it is there or not."""
        header = DeleteTopicRequestHeader(topic)
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        yield from self._calls.each_master(topic, code, lambda _: header, names=names)
        # Brokers have forgotten it, and tell the name servers. So this may be left out by who may
        # delete topics and has no right to the whole cluster.
        with suppress(BrokerError):
            yield from self._calls.core.name_servers.ask(
                RequestCode.DELETE_TOPIC_IN_NAMESRV, header, _Ignored()
            )

    def _configs(self, topic: str) -> Flow[list[tuple[BrokerAnswer, TopicConfig]]]:
        answers = yield from self._calls.each_broker(
            RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic), ResponseCode.TOPIC_NOT_EXIST
        )
        if not answers:
            raise _unknown(topic)
        return [(answer, answer.body(TopicConfig)) for answer in answers]

    def _groups(self, topic: str) -> Flow[list[str]]:
        answers = yield from self._calls.each_broker(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            TopicRequestHeader(topic),
            ResponseCode.SYSTEM_ERROR,
        )
        found = {group for answer in answers for group in answer.body(GroupList).group_list}
        return sorted(found - {topic})  # RocketMQ lists the topic itself


class _Ignored:
    """A `Search` that hears all name servers and keeps nothing."""

    is_over = False
    has_answer = False

    def heard(self, address: str, answer: object) -> None:
        pass


def is_of_system(topic: str, info: ClusterInfo) -> bool:
    """Whether brokers made a topic for themselves. Dead letters are for operators to look at."""
    return (
        is_system_topic(topic)
        or topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        or topic in info.broker_addr_table
        or topic in info.cluster_addr_table
        or topic.removesuffix(REPLY_TOPIC_SUFFIX) in info.cluster_addr_table
    )


def _queues(answer: BrokerAnswer) -> list[TopicQueue]:
    try:
        entries = by_queue(answer.body(TopicOffsets).offset_table)
    except MalformedFrameError as error:
        raise illegible(answer.address, error) from error
    return [
        TopicQueue(
            queue.broker_name,
            queue.queue_id,
            offsets.min_offset,
            offsets.max_offset,
            offsets.last_update_timestamp or None,
        )
        for queue, offsets in entries
    ]


def _unknown(topic: str) -> ClientError:
    return RouteNotFoundError(topic, RouteCause.NO_TOPIC, "no broker has such a topic")
