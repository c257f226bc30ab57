"""Which brokers and queues a topic has, and which queue is next. Pure.

Publish queues: those of broker names whose queues are writable and whose master (id 0) is in the
route. Subscribe queues: those that are readable, master or not.

Source: RocketMQ 5.3.3, MQClientInstance.topicRouteData2TopicPublishInfo and
topicRouteData2TopicSubscribeInfo; TopicPublishInfo.selectOneMessageQueue.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tandem.client.errors import RouteCause, RouteNotFoundError
from tandem.client.results import MessageQueue
from tandem.wire.route import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)

DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
"""Queues that a producer asks for when its send creates the topic (DefaultMQProducer)."""


class PublishQueue(msgspec.Struct, frozen=True, gc=False):
    """A queue that takes sends, and where."""

    queue: MessageQueue
    address: str
    is_fenced: bool = False
    """Its group elects its master. The route says so: only such a group's has an epoch, which a
    name server of RocketMQ leaves out."""


class TopicRoute:
    """What is known of one topic, and whose turn it is.

    `is_default` marks a guess: the topic does not exist yet, the first send creates it.
    """

    def __init__(
        self,
        topic: str,
        data: TopicRouteData,
        *,
        is_default: bool = False,
        turn: int = 0,
    ) -> None:
        self.topic = topic
        self.data = data
        self.is_default = is_default
        self.publish_queues = _publish_queues(topic, data)
        self._writable_queues = _writable_queues(topic, data)
        self.subscribe_queues = _subscribe_queues(topic, data)
        self._brokers = {broker.broker_name: broker for broker in data.broker_datas}
        self._turn = turn

    @property
    def turn(self) -> int:
        """How many choices were made; a fresh route goes on from it."""
        return self._turn

    def refusal(self, queue_id: int | None) -> RouteNotFoundError:
        """Return why no queue is there for a send that has this number, or that has a key."""
        if not any(each.perm & PERM_WRITE for each in self.data.queue_datas):
            reason = "none of its queues takes sends; give it the permission to write"
            return RouteNotFoundError(self.topic, RouteCause.READ_ONLY, reason, may_pass=True)
        if not self.publish_queues:
            reason = "no broker takes sends: none has a master now"
            return RouteNotFoundError(self.topic, RouteCause.NO_MASTER, reason, may_pass=True)
        if queue_id is None:
            reason = "the broker of this sharding key's queue has no master now"
            return RouteNotFoundError(self.topic, RouteCause.NO_MASTER, reason, may_pass=True)
        known = sorted({each.queue.queue_id for each in self.publish_queues})
        reason = f"there is no queue {queue_id}; the writable ones are {', '.join(map(str, known))}"
        return RouteNotFoundError(self.topic, RouteCause.NO_QUEUE, reason)

    def next_queue(
        self, queue_id: int | None = None, avoid_broker: str | None = None
    ) -> PublishQueue | None:
        """Return the queue whose turn it is, None if none takes sends.

        `avoid_broker` just failed: a queue elsewhere is preferred. With `queue_id` only the queues
        of that number count.
        """
        queues = self.publish_queues
        if queue_id is None and avoid_broker is None and queues:
            self._turn += 1
            return queues[(self._turn - 1) % len(queues)]
        for wanted in (avoid_broker, None):
            for _ in range(len(queues)):
                choice = queues[self._turn % len(queues)]
                self._turn += 1
                if queue_id is not None and choice.queue.queue_id != queue_id:
                    continue
                if wanted is None or choice.queue.broker_name != wanted:
                    return choice
        return None

    def hashed_queue(self, sharding_hash: int) -> PublishQueue | None:
        """Return the queue of a sharding key, None while its broker name has no master.

        It is the one that RocketMQ's producers choose. They choose another one while a master is
        missing; here the key waits for it, so that its messages stay in order.

        Source: SelectMessageQueueByHash.
        """
        queues = self._writable_queues
        if not queues:
            return None
        queue, address = queues[abs(sharding_hash) % len(queues)]
        if not address:
            return None
        return PublishQueue(queue, address, self.is_fenced(queue.broker_name))

    @property
    def writable_queues_count(self) -> int:
        """How many queues a sharding key may have, with a master or without; at least 1."""
        return max(1, len(self._writable_queues))

    def is_fenced(self, broker_name: str) -> bool:
        """True if the group of this broker name elects its master."""
        broker = self._brokers.get(broker_name)
        return broker is not None and _epoch(broker) >= 0

    def addresses(self, broker_name: str) -> dict[int, str]:
        """Return broker id to address of one broker name, the master first."""
        broker = self._brokers.get(broker_name)
        return dict(sorted(broker.broker_addrs.items())) if broker else {}


def newest_route(
    found: Sequence[TopicRouteData], known: TopicRouteData | None = None
) -> TopicRouteData:
    """Return what several name servers say together, and what is known; `found` must not be empty.

    Of a broker name that several know, the one with the highest master epoch is right: a name
    server that was cut off goes on naming the old master. Else one that has a master wins over
    one that has none; then one with more queues, since the others have not heard of them yet; then
    the first. What is `known` wins only with a higher epoch, and only for broker names in an
    answer.
    """
    best: dict[str, tuple[BrokerData, TopicRouteData]] = {}
    for route in found:
        for broker in route.broker_datas:
            name = broker.broker_name
            if name not in best or _rank(broker, route) > _rank(*best[name]):
                best[name] = (broker, route)
    for broker in known.broker_datas if known is not None else ():
        name = broker.broker_name
        if known is not None and name in best and _epoch(broker) > _epoch(best[name][0]):
            best[name] = (broker, known)
    return msgspec.structs.replace(
        found[0],
        broker_datas=[broker for broker, _ in best.values()],
        queue_datas=[
            queue
            for name, (_, route) in best.items()
            for queue in route.queue_datas
            if queue.broker_name == name
        ],
    )


def _rank(broker: BrokerData, route: TopicRouteData) -> tuple[int, bool, int]:
    queues_count = sum(
        queue.read_queue_nums
        for queue in route.queue_datas
        if queue.broker_name == broker.broker_name
    )
    return _epoch(broker), MASTER_ID in broker.broker_addrs, queues_count


def lacks_masters(data: TopicRouteData) -> bool:
    """Whether a broker name of this route has no master now, or no broker is in it at all."""
    masters = [MASTER_ID in broker.broker_addrs for broker in data.broker_datas]
    return not masters or not all(masters)


def newest_cluster(found: Sequence[ClusterInfo]) -> ClusterInfo:
    """Return what several name servers say of all brokers, by the rules of `newest_route`."""
    best: dict[str, BrokerData] = {}
    clusters: dict[str, list[str]] = {}
    nothing = TopicRouteData()
    for info in found:
        for name, broker in info.broker_addr_table.items():
            if name not in best or _rank(broker, nothing) > _rank(best[name], nothing):
                best[name] = broker
        for cluster, names in info.cluster_addr_table.items():
            known = clusters.setdefault(cluster, [])
            known += [name for name in names if name not in known]
    return ClusterInfo(best, clusters)


def masters_of(data: TopicRouteData) -> dict[str, tuple[int, str]]:
    """Return epoch (-1: none) and address ("": none) of the master of each broker name."""
    return {
        broker.broker_name: (_epoch(broker), broker.broker_addrs.get(MASTER_ID, ""))
        for broker in data.broker_datas
    }


def _epoch(broker: BrokerData) -> int:
    return -1 if broker.master_epoch is msgspec.UNSET else broker.master_epoch


def default_route(data: TopicRouteData) -> TopicRouteData:
    """Return the route a topic will have once a send creates it, from that of AUTO_CREATE_TOPIC."""
    return msgspec.structs.replace(
        data,
        queue_datas=[
            msgspec.structs.replace(
                queue,
                read_queue_nums=min(queue.read_queue_nums, DEFAULT_TOPIC_QUEUE_NUMS),
                write_queue_nums=min(queue.write_queue_nums, DEFAULT_TOPIC_QUEUE_NUMS),
            )
            for queue in data.queue_datas
        ],
    )


def _publish_queues(topic: str, data: TopicRouteData) -> tuple[PublishQueue, ...]:
    fenced = {broker.broker_name for broker in data.broker_datas if _epoch(broker) >= 0}
    return tuple(
        PublishQueue(queue, address, queue.broker_name in fenced)
        for queue, address in _writable_queues(topic, data)
        if address
    )


def _writable_queues(topic: str, data: TopicRouteData) -> tuple[tuple[MessageQueue, str], ...]:
    """All that take sends, and where; "" while there is no master."""
    masters = {each.broker_name: each.broker_addrs.get(MASTER_ID, "") for each in _sorted(data)}
    return tuple(
        (MessageQueue(topic, queue.broker_name, queue_id), masters[queue.broker_name])
        for queue in _sorted_queues(data)
        if queue.perm & PERM_WRITE and queue.broker_name in masters
        for queue_id in range(queue.write_queue_nums)
    )


def _subscribe_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, queue.broker_name, queue_id)
        for queue in _sorted_queues(data)
        if queue.perm & PERM_READ
        for queue_id in range(queue.read_queue_nums)
    )


def _sorted(data: TopicRouteData) -> list[BrokerData]:
    return sorted(data.broker_datas, key=lambda broker: broker.broker_name)


def _sorted_queues(data: TopicRouteData) -> list[QueueData]:
    return sorted(data.queue_datas, key=lambda queue: queue.broker_name)
