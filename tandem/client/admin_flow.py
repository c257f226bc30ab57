"""The rules of administration: topics, and what the cluster and its replication look like."""

from typing import Final

import msgspec

from tandem.client.core import REQUEST_TIMEOUT_SECONDS, ClientCore
from tandem.client.errors import BrokerError, ConnectionLostError, RouteNotFoundError
from tandem.client.flow import Call, Flow, call_successfully
from tandem.client.routes import AUTO_CREATE_TOPIC
from tandem.wire.errors import MalformedFrameError
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    HARuntimeInfo,
    OffsetResponseHeader,
    QueueRequestHeader,
)
from tandem.wire.request_signature import ChallengeBody, signed
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BodyT,
    ClusterInfo,
    TopicList,
    TopicRouteData,
    decode_json_body,
)
from tandem.wire.secret_keys import Purpose, key_of

DEFAULT_QUEUE_NUMS: Final = 8
"""RocketMQ's `mqadmin updateTopic`."""


class Administration:
    """Asks for one administrator. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore, secret: str = "") -> None:
        """Ask for one administrator; with the secret of a cluster it can give orders to it."""
        self._core = core
        self._key = key_of(secret, Purpose.REQUEST) if secret else None

    def cluster_info(self) -> Flow[ClusterInfo]:
        """Return all brokers that the name servers know."""
        return self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)

    def topics(self) -> Flow[list[str]]:
        """Return the names of all topics, sorted."""
        body = yield from self._ask_name_server(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList
        )
        return sorted(body.topic_list)

    def topic_route(self, topic: str) -> Flow[TopicRouteData]:
        """Return the route of one topic, freshly asked for."""
        yield from self._core.refresh_route(topic)
        return self._core.routes[topic].data

    def create_topic(
        self, topic: str, queue_nums: int, perm: int, broker_name: str | None
    ) -> Flow[None]:
        """Create a topic, or change it, at the masters of all broker names or of one."""
        info = yield from self.cluster_info()
        masters = [
            broker.broker_addrs[MASTER_ID]
            for name, broker in sorted(info.broker_addr_table.items())
            if broker_name in (None, name) and MASTER_ID in broker.broker_addrs
        ]
        if not masters:
            raise RouteNotFoundError(topic, f"no master of broker {broker_name or '*'} is known")
        ext = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        for address in masters:
            call = Call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext, self._deadline())
            try:
                yield from call_successfully(call)
            except BrokerError as error:
                # A topic of the system: whether it is one, the broker knows.
                if error.code != ResponseCode.NO_PERMISSION or self._key is None:
                    raise
                yield from self._call_signed(call)

    def ha_runtime_info(self, address: str) -> Flow[HARuntimeInfo]:
        """Return what the broker at `address` knows of its slaves or of its master."""
        call = Call(address, RequestCode.GET_BROKER_HA_STATUS, None, self._deadline())
        answer = yield from call_successfully(call)
        return _decode_body(answer, HARuntimeInfo, address)

    def fenced_status(self, address: str) -> Flow[FencedStatus]:
        """Return how the node at `address` sees its fenced group."""
        call = Call(address, RequestCode.FENCED_STATUS, None, self._deadline())
        answer = yield from call_successfully(call)
        return _decode_body(answer, FencedStatus, address)

    def fenced_command(
        self, address: str, command: FencedCommand, timeout_seconds: float
    ) -> Flow[FencedCommandResult]:
        """Give an order to the node at `address`; the result says if it was done."""
        body = msgspec.json.encode(command)
        deadline = self._core.clock() + timeout_seconds
        call = Call(address, RequestCode.FENCED_COMMAND, None, deadline, body)
        answer = yield from self._call_signed(call)
        return _decode_body(answer, FencedCommandResult, address)

    def queue_offset(self, address: str, topic: str, queue_id: int, code: RequestCode) -> Flow[int]:
        """Return the min or max offset of a queue as the broker at `address` has it."""
        call = Call(address, code, QueueRequestHeader(topic, queue_id), self._deadline())
        answer = yield from call_successfully(call)
        try:
            return answer.decode_header(OffsetResponseHeader).offset
        except MalformedFrameError as error:
            raise _illegible(address, error) from error

    def _call_signed(self, call: Call) -> Flow[RemotingCommand]:
        """Send a request with a signature, if we have the secret; see `request_signature`."""
        if self._key is None:
            return (yield from call_successfully(call))
        ask = Call(call.address, RequestCode.NODE_CHALLENGE, None, call.deadline)
        answer = yield from call_successfully(ask)
        challenge = _decode_body(answer, ChallengeBody, call.address).challenge
        fields = RemotingCommand(call.code, ext=call.ext).ext_fields()
        ext = signed(
            self._key, call.code, fields, call.body, challenge=challenge, target=call.address
        )
        own = Call(call.address, call.code, ext, call.deadline, call.body)
        return (yield from call_successfully(own))

    def _ask_name_server(self, code: RequestCode, body_type: type[BodyT]) -> Flow[BodyT]:
        answer = yield from self._core.ask_name_server(code, None, "*")
        if answer.code != ResponseCode.SUCCESS:
            raise RouteNotFoundError("*", f"name server: {answer.code} {answer.remark}")
        return _decode_body(answer, body_type, "name server")

    def _deadline(self) -> float:
        return self._core.clock() + REQUEST_TIMEOUT_SECONDS


def _decode_body(answer: RemotingCommand, body_type: type[BodyT], address: str) -> BodyT:
    try:
        return decode_json_body(answer.body, body_type)
    except MalformedFrameError as error:
        raise _illegible(address, error) from error


def _illegible(address: str, error: MalformedFrameError) -> ConnectionLostError:
    return ConnectionLostError(address, f"the answer does not parse: {error}")


ALL_PERMISSIONS: Final = PERM_READ | PERM_WRITE
