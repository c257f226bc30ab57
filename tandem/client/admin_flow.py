"""The rules of administration: topics, and what the cluster and its replication look like."""

import itertools
from typing import Final, Generic

import msgspec

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from tandem.client.flow import Call, Flow, Pause, call_successfully
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.routes import AUTO_CREATE_TOPIC, newest_cluster
from tandem.wire.admin_headers import settings_of
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
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return newest_cluster((yield from self._ask_name_servers(code, ClusterInfo)))

    def topics(self) -> Flow[list[str]]:
        """Return the names of all topics, sorted."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        lists = yield from self._ask_name_servers(code, TopicList)
        return sorted({topic for each in lists for topic in each.topic_list})

    def topic_route(self, topic: str) -> Flow[TopicRouteData]:
        """Return the route of one topic, freshly asked for."""
        yield from self._core.refresh_route(topic)
        return self._core.routes[topic].data

    def create_topic(
        self, topic: str, queue_nums: int, perm: int, broker_name: str | None
    ) -> Flow[None]:
        """Create a topic, or change it, at the masters of all broker names or of one.

        A master that is missing is waited for, for `SWITCH_SECONDS`; then the others are enough.
        """
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
        end = self._core.clock() + SWITCH_SECONDS
        for retries_count in itertools.count():
            pause = retry_pause_seconds(retries_count)
            is_last = self._core.clock() + pause >= end
            try:
                masters = yield from self._masters(topic, broker_name, all_wanted=not is_last)
                for address in masters:
                    yield from self._create_topic_at(address, ext)
            except ClientError as error:
                if is_last or not _may_pass(error):
                    raise
                yield Pause(pause)
            else:
                return

    def _create_topic_at(self, address: str, ext: CreateTopicRequestHeader) -> Flow[None]:
        call = Call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext, self._deadline())
        try:
            yield from call_successfully(call)
        except BrokerError as error:
            # A topic of the system: whether it is one, the broker knows.
            if error.code != ResponseCode.NO_PERMISSION or self._key is None:
                raise
            yield from self._call_signed(call)

    def _masters(self, topic: str, broker_name: str | None, *, all_wanted: bool) -> Flow[list[str]]:
        """Return the masters of all broker names or of one; if `all_wanted` none may be missing."""
        info = yield from self.cluster_info()
        brokers = {
            name: broker.broker_addrs.get(MASTER_ID, "")
            for name, broker in sorted(info.broker_addr_table.items())
            if broker_name in (None, name)
        }
        masters = [address for address in brokers.values() if address]
        if not masters or (all_wanted and not all(brokers.values())):
            lacking = [name for name, address in brokers.items() if not address]
            names = ", ".join(lacking) or broker_name or "*"
            reason = f"no master of broker {names} is registered"
            raise RouteNotFoundError(topic, reason, may_pass=bool(brokers))
        return masters

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

    def broker_config(self, address: str) -> Flow[dict[str, str]]:
        """Return the settings of the broker at `address`, under RocketMQ's names."""
        call = Call(address, RequestCode.GET_BROKER_CONFIG, None, self._deadline())
        answer = yield from call_successfully(call)
        try:
            return settings_of(answer.body)
        except MalformedFrameError as error:
            raise _illegible(address, error) from error

    def update_broker_config(self, address: str, settings: dict[str, str]) -> Flow[None]:
        """Change settings of the broker at `address` until it stops."""
        body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
        deadline = self._deadline()
        call = Call(address, RequestCode.UPDATE_BROKER_CONFIG, None, deadline, body)
        yield from self._call_signed(call)

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

    def _ask_name_servers(self, code: RequestCode, body_type: type[BodyT]) -> Flow[list[BodyT]]:
        """Return what each name server says that answers: one that has just started knows less."""
        search = _Bodies(body_type)
        yield from self._core.name_servers.ask(code, None, search)
        if not search.bodies:
            reason = f"no name server answers ({'; '.join(search.troubles)})"
            raise RouteNotFoundError("*", reason, may_pass=True)
        return search.bodies

    def _deadline(self) -> float:
        return self._core.clock() + REQUEST_TIMEOUT_SECONDS


class _Bodies(Generic[BodyT]):
    """A `Search` that hears all name servers."""

    is_over = False

    def __init__(self, body_type: type[BodyT]) -> None:
        self._type = body_type
        self.bodies: list[BodyT] = []
        self.troubles: list[str] = []

    @property
    def has_answer(self) -> bool:
        return bool(self.bodies)

    def heard(self, address: str, answer: RemotingCommand | ClientError) -> None:
        if isinstance(answer, ClientError):
            self.troubles.append(str(answer))
        elif answer.code != ResponseCode.SUCCESS:
            self.troubles.append(f"name server {address}: {answer.code} {answer.remark}")
        else:
            try:
                self.bodies.append(decode_json_body(answer.body, self._type))
            except MalformedFrameError as error:
                self.troubles.append(f"name server {address}: {error}")


def _may_pass(error: ClientError) -> bool:
    """Whether creating a topic may succeed a moment later; to do it twice does no harm."""
    match error:
        case RouteNotFoundError():
            return error.may_pass
        case BrokerError():
            return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        case _:
            return isinstance(error, ConnectionLostError | RequestTimeoutError)


def _decode_body(answer: RemotingCommand, body_type: type[BodyT], address: str) -> BodyT:
    try:
        return decode_json_body(answer.body, body_type)
    except MalformedFrameError as error:
        raise _illegible(address, error) from error


def _illegible(address: str, error: MalformedFrameError) -> ConnectionLostError:
    return ConnectionLostError(address, f"the answer does not parse: {error}")


ALL_PERMISSIONS: Final = PERM_READ | PERM_WRITE
