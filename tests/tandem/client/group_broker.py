"""A fake broker that knows groups: members, offsets, locks, messages that come back."""

from tandem.wire.message import MessageExt
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerIdList,
    ConsumerSendMsgBackRequestHeader,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SubscriptionData,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicRouteData, decode_json_body, encode_json_body
from tandem.wire.system_topics import retry_topic
from tests.tandem.client.fake_broker import MASTER, ONE_BROKER, FakeBroker, answer_to, route_of

GROUP = "billing"
NOTICE = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1, ONEWAY_FLAG)


class GroupBroker(FakeBroker):
    """See `FakeBroker`."""

    def __init__(self, routes: dict[str, TopicRouteData] | None = None) -> None:
        super().__init__()
        self.routes = routes or {
            "orders": ONE_BROKER,
            retry_topic(GROUP): route_of(("broker-a", {0: MASTER}), queue_nums=1),
        }
        self.members: list[str] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.commits: list[tuple[str, int, int]] = []
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.subscriptions: dict[str, list[SubscriptionData]] = {}
        self.move_to: dict[tuple[str, int], int] = {}
        self.locks: dict[tuple[str, int], str] = {}
        self.handlers |= {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda request: answer_to(
                request, body=encode_json_body(ConsumerIdList(self.members))
            ),
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.PULL_MESSAGE: self._pull_or_move,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def queue(self, topic: str, queue_id: int) -> list[MessageExt]:
        """Return the messages of a queue."""
        return self.queues.setdefault((topic, queue_id), [])

    def _heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        data = decode_json_body(request.body, HeartbeatData)
        if data.client_id not in self.members:
            self.members.append(data.client_id)
        for consumer in data.consumer_data_set:
            self.subscriptions[data.client_id] = consumer.subscription_data_set
        return answer_to(request)

    def _unregister(self, request: RemotingCommand) -> RemotingCommand:
        self.members.remove(request.decode_header(UnregisterClientRequestHeader).client_id)
        return answer_to(request)

    def _query_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(QueryConsumerOffsetRequestHeader)
        offset = self.offsets.get((header.topic, header.queue_id))
        if offset is None:
            return answer_to(request, ResponseCode.QUERY_NOT_FOUND)
        return answer_to(request, ext=OffsetResponseHeader(offset))

    def _update_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(UpdateConsumerOffsetRequestHeader)
        self.offsets[header.topic, header.queue_id] = header.commit_offset
        self.commits.append((header.topic, header.queue_id, header.commit_offset))
        return answer_to(request)

    def _pull_or_move(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(PullMessageRequestHeader)
        key = (header.topic, header.queue_id)
        if key not in self.move_to:
            return self._pull(request)
        ext = PullMessageResponseHeader(0, self.move_to.pop(key), 0, len(self.queue(*key)))
        return answer_to(request, ResponseCode.PULL_OFFSET_MOVED, ext)

    def _search(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(SearchOffsetRequestHeader)
        return answer_to(request, ext=OffsetResponseHeader(header.timestamp % 100))

    def _send_back(self, request: RemotingCommand) -> RemotingCommand:
        self.sent_back.append(request.decode_header(ConsumerSendMsgBackRequestHeader))
        return answer_to(request)

    def _lock(self, request: RemotingCommand) -> RemotingCommand:
        asked = decode_json_body(request.body, LockBatchRequestBody)
        held = [
            each
            for each in asked.mq_set
            if self.locks.setdefault((each.topic, each.queue_id), asked.client_id)
            == asked.client_id
        ]
        return answer_to(request, body=encode_json_body(LockBatchResponseBody(held)))

    def _unlock(self, request: RemotingCommand) -> RemotingCommand:
        asked = decode_json_body(request.body, LockBatchRequestBody)
        for each in asked.mq_set:
            self.locks.pop((each.topic, each.queue_id), None)
        return answer_to(request)
