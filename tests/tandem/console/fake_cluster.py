"""A cluster of three nodes in memory, with topics, a group and users, as a console sees one."""

from collections.abc import Callable
from functools import partial

import msgspec

from tandem.client.credentials import Credentials
from tandem.wire.admin_headers import ClientConnection, ConsumerConnection
from tandem.wire.message import Host, MessageExt
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY, decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    HARuntimeInfo,
    MessageQueueBody,
    OffsetResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicConfig,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import BrokerData, ClusterInfo, TopicList, encode_json_body
from tandem.wire.stats_requests import (
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
    queue_map,
)
from tandem.wire.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from tests.tandem.client.admin_bench import records
from tests.tandem.client.fake_broker import (
    FakeBroker,
    Handler,
    answer_to,
    message_ext,
    route_of,
)
from tests.tandem.views.fake_group import Nodes
from tests.tandem.views.group_samples import MEMBERS

HOST = Host("10.0.0.1", 10_911)
BROKER = "g"
GROUP = "billing"
ADDRESSES = [member.address for member in MEMBERS]

INFO = ClusterInfo(
    {BROKER: BrokerData(broker_name=BROKER, broker_addrs=dict(enumerate(ADDRESSES)))},
    {"C": [BROKER]},
)

NEEDS_THE_CLUSTER = frozenset(
    {
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.FENCED_STATUS,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_BROKER_CONFIG,
    }
)


class GuardedBroker(FakeBroker):
    """Asks who sends a request, if the cluster has users."""

    def __init__(self, cluster: "FakeCluster") -> None:
        super().__init__()
        self._cluster = cluster

    def answer(self, request: RemotingCommand) -> bytes:
        if (remark := self._cluster.refusal(request)) is None:
            return super().answer(request)
        self.requests.append(request)
        denied = answer_to(request, ResponseCode.NO_PERMISSION, remark=remark)
        self.handlers, kept = {request.code: lambda _: denied}, self.handlers
        try:
            return super().answer(request)
        finally:
            self.handlers = kept


class FakeCluster(Nodes):
    """Fenced group `g` of a, b and c. Topic `Orders` has two queues.

    Attributes:
        queues: Messages by topic and queue.
        secrets: That of each user; empty: the cluster is open.
        looks_around: The users who may look at the cluster as a whole.
        resets: What was asked for.
        members: Clients of the consumer group that are online.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, list[list[MessageExt]]] = {"Orders": [[], []]}
        self.secrets: dict[str, str] = {}
        self.looks_around: set[str] = set()
        self.resets: list[dict[str, str]] = []
        self.members: list[str] = []
        self.committed = 0
        self.now_ms = 1_700_000_000_000
        for address in ADDRESSES:
            self._serve(self.brokers[address])

    def _broker(self, name: str) -> FakeBroker:
        plain, guarded = super()._broker(name), GuardedBroker(self)
        guarded.handlers |= plain.handlers
        return guarded

    def refusal(self, request: RemotingCommand) -> str | None:
        """Why a request is refused, None if it is not."""
        if not self.secrets:
            return None
        fields = dict(request.ext_fields())
        user, signature = fields.get("AccessKey", ""), fields.pop("Signature", "")
        if user not in self.secrets:
            return "who is that?"
        bare = {name: value for name, value in fields.items() if name != "AccessKey"}
        again = Credentials(user, self.secrets[user]).signed(
            RemotingCommand(request.code, ext=bare, body=request.body)
        )
        if again.ext_fields()["Signature"] != signature:
            return "wrong signature"
        if request.code in NEEDS_THE_CLUSTER and user not in self.looks_around:
            return f"User:{user} may not Get Cluster:C"
        return None

    def store(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> MessageExt:
        """Have a message in a queue, stored a millisecond after the last one."""
        self.now_ms += 1
        queue = self.queues.setdefault(topic, [[], []])[queue_id]
        place = sum(len(each) for queues in self.queues.values() for each in queues)
        message = msgspec.structs.replace(
            message_ext(
                body, topic=topic, queue_id=queue_id, queue_offset=len(queue),
                properties=properties,
            ),
            store_timestamp_ms=self.now_ms,
            store_host=HOST,
            physical_offset=1000 * place,
        )  # fmt: skip
        queue.append(message)
        return message

    def dead_letter(self, body: bytes, key: str, **properties: str) -> MessageExt:
        """Have a letter that came from Orders in the dead letters of the group."""
        self.queues.setdefault(f"%DLQ%{GROUP}", [[]])
        facts = {"UNIQ_KEY": key, "RETRY_TOPIC": "Orders", **properties}
        return self.store(f"%DLQ%{GROUP}", body, 0, **facts)

    # --- what nodes answer ------------------------------------------------------------------

    def _serve(self, broker: FakeBroker) -> None:
        def body(code: RequestCode, make: Callable[[RemotingCommand], msgspec.Struct]) -> None:
            broker.handlers[code] = lambda request: answer_to(
                request, body=encode_json_body(make(request))
            )

        broker.routes = {}
        body(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: INFO)
        body(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            lambda _: TopicList([*self.queues, "TBW102"]),
        )
        body(RequestCode.GET_BROKER_HA_STATUS, lambda _: HARuntimeInfo(master=True))
        body(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda _: GroupList([GROUP]))
        body(RequestCode.GET_CONSUME_STATS, lambda _: self._progress())
        body(
            RequestCode.GET_BROKER_CONSUME_STATS,
            lambda _: ConsumeStatsList(ADDRESSES[0], [{GROUP: [self._progress()]}], 0, 0),
        )
        body(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            lambda _: SubscriptionGroupWrapper({GROUP: SubscriptionGroupConfig(GROUP)}),
        )
        handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_TOPIC_CONFIG: partial(self._of_topic, self._config),
            RequestCode.GET_TOPIC_STATS_INFO: partial(self._of_topic, self._stats),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._connections,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.GET_BROKER_CONFIG: lambda request: answer_to(
                request, body=b"brokerName=g\nsomeSecretKey=hush\nsecretFile=/data/secret\n"
            ),
        }
        broker.handlers |= handlers

    def _known(self, request: RemotingCommand) -> list[list[MessageExt]] | None:
        return self.queues.get(request.ext_fields()["topic"])

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        queues = self._known(request)
        if queues is None:
            return answer_to(request, ResponseCode.TOPIC_NOT_EXIST)
        route = route_of((BROKER, dict(enumerate(ADDRESSES))), queue_nums=len(queues))
        return answer_to(request, body=encode_json_body(route))

    def _of_topic(
        self, make: Callable[[str], msgspec.Struct], request: RemotingCommand
    ) -> RemotingCommand:
        if self._known(request) is None:
            return answer_to(request, ResponseCode.TOPIC_NOT_EXIST)
        return answer_to(request, body=encode_json_body(make(request.ext_fields()["topic"])))

    def _config(self, topic: str) -> msgspec.Struct:
        return TopicConfig(topic)

    def _stats(self, topic: str) -> msgspec.Struct:
        return TopicStatsTable(
            queue_map(
                (MessageQueueBody(BROKER, queue_id, topic), TopicOffset(0, len(queue), 0))
                for queue_id, queue in enumerate(self.queues[topic])
            ),
            0.0,
        )

    def _progress(self) -> ConsumeStats:
        ends = [len(queue) for queue in self.queues["Orders"]]
        return ConsumeStats(
            0.0,
            queue_map(
                (
                    MessageQueueBody(BROKER, queue_id, "Orders"),
                    OffsetWrapper(end, self.committed, 0, self.committed),
                )
                for queue_id, end in enumerate(ends)
            ),
        )

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields()
        found = self.queues[fields["topic"]][int(fields["queueId"])]
        broker = FakeBroker()
        broker.queues[fields["topic"], int(fields["queueId"])] = found
        answer = broker.handlers[RequestCode.PULL_MESSAGE](request)
        assert answer is not None
        return answer

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields()
        queues = self.queues.get(fields["topic"], [])
        found = [
            message
            for queue in queues
            for message in queue
            if fields["key"] in (*message.keys.split(), message.properties.get(PROPERTY_UNIQUE_KEY))
        ]
        return records(request, *found)

    def _view(self, request: RemotingCommand) -> RemotingCommand:
        place = int(request.ext_fields()["offset"])
        for queues in self.queues.values():
            for message in (each for queue in queues for each in queue):
                if message.physical_offset == place:
                    return records(request, message)
        return answer_to(request, ResponseCode.SYSTEM_ERROR, remark="nothing is there")

    def _search(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields()
        queue = self.queues[fields["topic"]][int(fields["queueId"])]
        before = sum(each.store_timestamp_ms < int(fields["timestamp"]) for each in queue)
        return answer_to(request, ext=OffsetResponseHeader(before))

    def _committed(self, request: RemotingCommand) -> RemotingCommand:
        return answer_to(request, ext=OffsetResponseHeader(self.committed))

    def _reset(self, request: RemotingCommand) -> RemotingCommand:
        self.resets.append(dict(request.ext_fields()))
        return answer_to(request)

    def _connections(self, request: RemotingCommand) -> RemotingCommand:
        if not self.members:
            return answer_to(request, ResponseCode.CONSUMER_NOT_ONLINE)
        connection = ConsumerConnection(
            connection_set=[
                ClientConnection(each, "10.0.0.7:1", "JAVA", 479) for each in self.members
            ],
            subscription_table={},
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
        )
        return answer_to(request, body=encode_json_body(connection))

    def _send(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(SendMessageRequestHeaderV2)
        properties = decode_properties((header.properties or "").encode())
        stored = self.store(header.topic, request.body, header.queue_id, **properties)
        ext = SendMessageResponseHeader(stored.offset_msg_id, header.queue_id, stored.queue_offset)
        return answer_to(request, ext=ext)
