"""The rules of administration: topics, and what the cluster and its replication look like."""

import itertools
from collections.abc import Mapping
from typing import Final

import msgspec

from tandem.client.admin_calls import AdminCalls, decode_body, illegible, may_pass
from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import ClientError
from tandem.client.flow import Call, Flow, Pause, call_successfully
from tandem.client.group_admin import GroupAdministration
from tandem.client.life_admin import LifeAdministration
from tandem.client.message_admin import MessageAdministration
from tandem.client.topic_admin import TopicAdministration
from tandem.client.trace_admin import TraceAdministration
from tandem.client.user_admin import UserAdministration
from tandem.wire.admin_headers import settings_of
from tandem.wire.errors import MalformedFrameError
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    HARuntimeInfo,
    KVTable,
    OffsetResponseHeader,
    QueueRequestHeader,
)
from tandem.wire.route import (
    PERM_READ,
    PERM_WRITE,
    ClusterInfo,
    TopicRouteData,
)
from tandem.wire.system_topics import AUTO_CREATE_TOPIC

ALL_PERMISSIONS: Final = PERM_READ | PERM_WRITE

DEFAULT_QUEUE_NUMS: Final = 8
"""RocketMQ's `mqadmin updateTopic`."""

COMMAND_SECONDS_DEFAULT: Final = 10.0
"""For an operator's order: a node may have to write to its coordinator and its disk for it."""


class Administration:
    """Asks for one administrator. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore, secret: str = "") -> None:
        """Ask for one administrator; with the secret of a cluster it can give orders to it."""
        self._core = core
        self.calls = AdminCalls(core, secret)
        self.topic = TopicAdministration(self.calls)
        self.group = GroupAdministration(self.calls, self.topic)
        self.message = MessageAdministration(self.calls, self.topic, self.group)
        self.life = LifeAdministration(self.calls, self.topic)
        self.users = UserAdministration(self.calls)
        self.traces = TraceAdministration(self.message)

    @property
    def parts(self) -> tuple[object, ...]:
        """All whose flows an administrator has."""
        parts = self.topic, self.group, self.message, self.life, self.traces, self.users
        return self, *parts

    def cluster_info(self) -> Flow[ClusterInfo]:
        """Return all brokers that the name servers know."""
        return self.calls.cluster_info()

    def topic_route(self, topic: str) -> Flow[TopicRouteData]:
        """Return where a topic lives, freshly asked for."""
        yield from self._core.refresh_route(topic)
        return self._core.routes[topic].data

    def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int = DEFAULT_QUEUE_NUMS,
        perm: int = ALL_PERMISSIONS,
        broker_name: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Flow[None]:
        """Create a topic, or change it, at all masters or at that of one broker name.

        `perm` bits: 4 read, 2 write. `attributes` by name, such as `cleanup.policy: COMPACTION`,
        which a topic can get only when it is created; those it has otherwise stay. A route shows it
        once the broker has registered again, which it does at once. A master that is missing is
        waited for, for 12 s; then the others are enough.
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
            attributes=",".join(f"+{name}={text}" for name, text in (attributes or {}).items())
            or None,
        )
        end = self._core.clock() + SWITCH_SECONDS
        for retries_count in itertools.count():
            pause = retry_pause_seconds(retries_count)
            is_last = self._core.clock() + pause >= end
            try:
                masters = yield from self.calls.masters(topic, broker_name, all_wanted=not is_last)
                for address in masters.values():
                    code = RequestCode.UPDATE_AND_CREATE_TOPIC
                    call = Call(address, code, ext, self.calls.deadline())
                    yield from self.calls.call_as_allowed(call)
            except ClientError as error:
                if is_last or not may_pass(error):
                    raise
                yield Pause(pause)
            else:
                return

    def ha_runtime_info(self, address: str) -> Flow[HARuntimeInfo]:
        """Return what the broker at `address` knows of its slaves or of its master."""
        call = Call(address, RequestCode.GET_BROKER_HA_STATUS, None, self.calls.deadline())
        answer = yield from call_successfully(call)
        return decode_body(answer, HARuntimeInfo, address)

    def began_at(self, address: str) -> Flow[str]:
        """Return when the broker at `address` has begun, as it says: each process another time."""
        call = Call(address, RequestCode.GET_BROKER_RUNTIME_INFO, None, self.calls.deadline())
        answer = yield from self.calls.call_as_allowed(call)
        return decode_body(answer, KVTable, address).table.get("bootTimestamp", "")

    def fenced_status(self, address: str) -> Flow[FencedStatus]:
        """Return how the node at `address` sees its fenced group."""
        call = Call(address, RequestCode.FENCED_STATUS, None, self.calls.deadline())
        answer = yield from call_successfully(call)
        return decode_body(answer, FencedStatus, address)

    def fenced_command(
        self,
        address: str,
        command: FencedCommand,
        *,
        timeout_seconds: float = COMMAND_SECONDS_DEFAULT,
    ) -> Flow[FencedCommandResult]:
        """Give an order to the node at `address`. That it refuses is a result, not an error."""
        body = msgspec.json.encode(command)
        deadline = self._core.clock() + timeout_seconds
        call = Call(address, RequestCode.FENCED_COMMAND, None, deadline, body)
        answer = yield from self.calls.call_signed(call)
        return decode_body(answer, FencedCommandResult, address)

    def min_offset(self, address: str, topic: str, queue_id: int) -> Flow[int]:
        """Return the oldest offset of a queue at the broker at `address`, master or not."""
        return self._queue_offset(address, topic, queue_id, RequestCode.GET_MIN_OFFSET)

    def max_offset(self, address: str, topic: str, queue_id: int) -> Flow[int]:
        """Return the next offset of a queue at the broker at `address`, master or not."""
        return self._queue_offset(address, topic, queue_id, RequestCode.GET_MAX_OFFSET)

    def _queue_offset(
        self, address: str, topic: str, queue_id: int, code: RequestCode
    ) -> Flow[int]:
        call = Call(address, code, QueueRequestHeader(topic, queue_id), self.calls.deadline())
        answer = yield from call_successfully(call)
        try:
            return answer.decode_header(OffsetResponseHeader).offset
        except MalformedFrameError as error:
            raise illegible(address, error) from error

    def broker_config(self, address: str) -> Flow[dict[str, str]]:
        """Return the settings of the broker at `address`, under RocketMQ's names."""
        call = Call(address, RequestCode.GET_BROKER_CONFIG, None, self.calls.deadline())
        answer = yield from call_successfully(call)
        try:
            return settings_of(answer.body)
        except MalformedFrameError as error:
            raise illegible(address, error) from error

    def update_broker_config(self, address: str, settings: Mapping[str, str]) -> Flow[None]:
        """Change settings of the broker at `address` until it stops; needs the cluster's secret.

        A broker of ours takes `fileReservedTime`, in hours.

        Raises:
            BrokerError: it does not change them while it runs; nothing was changed.
        """
        body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
        code = RequestCode.UPDATE_BROKER_CONFIG
        call = Call(address, code, None, self.calls.deadline(), body)
        yield from self.calls.call_signed(call)
