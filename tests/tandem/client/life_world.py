"""A cluster of two groups that has records of one message, for `Admin.why` and its parts."""

from collections.abc import Callable

import msgspec

from tandem.client.life_admin import LifeAdministration
from tandem.life.evidence import Evidence
from tandem.life.result import Why
from tandem.wire.ha_status import FencedStatus, ReplicaStatus
from tandem.wire.message import Host, MessageExt
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import KVTable, MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import (
    ConsumeStats,
    EpochEntryBody,
    EpochEntryCache,
    GroupList,
    OffsetWrapper,
    queue_map,
)
from tests.tandem.client.admin_bench import AdminBench, records
from tests.tandem.client.fake_broker import answer_to, message_ext

KEY = "7F0000012D2019C18436716E4DDC0000"
HOST = Host("10.0.0.1", 10_911)
NOW_MS = 1_700_000_100_000


def stored(topic: str = "T", offset: int = 0, *, at_ms: int = 0, **changes: object) -> MessageExt:
    """Return a record of the message; `properties` are added to those that it has."""
    properties = {"UNIQ_KEY": KEY, "KEYS": "k1 k2", **changes.pop("properties", {})}  # type: ignore[dict-item]
    message = message_ext(topic=topic, queue_offset=offset, properties=properties)
    facts = {
        "store_host": HOST,
        "physical_offset": 1_000 + at_ms,
        "store_timestamp_ms": 1_700_000_000_000 + at_ms,
        **changes,
    }
    return msgspec.structs.replace(message, **facts)


class LifeWorld(AdminBench):
    """An index that has `messages` at broker-a, and a group g that has read up to `read`."""

    def __init__(self, *messages: MessageExt, read: int = 0, readers: str = "g") -> None:
        super().__init__()
        self.indexed = messages
        self.answer(RequestCode.QUERY_MESSAGE, self._query)
        self.answer(RequestCode.VIEW_MESSAGE_BY_ID, self._view)
        self.bodies(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda _: GroupList([readers]))
        self.refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)
        self.refuse(RequestCode.FENCED_STATUS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.refuse(RequestCode.GET_BROKER_EPOCH_CACHE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.refuse(RequestCode.GET_BROKER_HA_STATUS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.settings(messageIndexEnable="true", brokerRole="SYNC_MASTER")
        runtime = {
            "commitLogMinOffset": "0",
            "commitLogMaxOffset": "9000",
            "earliestMessageTimeStamp": "1690000000000",
        }
        self.bodies(RequestCode.GET_BROKER_RUNTIME_INFO, lambda _: KVTable(runtime))
        progress = [(MessageQueueBody("broker-a", 0, "T"), OffsetWrapper(9, read, 0, read))]
        self.bodies(
            RequestCode.GET_CONSUME_STATS,
            lambda name: ConsumeStats(0.0, queue_map(progress if name == "broker-a" else [])),
        )
        self.life = LifeAdministration(self.calls, self.topics, lambda: NOW_MS)

    def why(self, message: str, topic: str = "") -> Why:
        return self.run(self.life.why(message, topic))

    def evidence(self) -> Evidence:
        return Evidence(message=KEY, now_ms=NOW_MS, is_cluster=True)

    def settings(self, **values: str) -> None:
        """Have every broker answer GET_BROKER_CONFIG with these."""
        text = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
        self.answer(
            RequestCode.GET_BROKER_CONFIG, lambda request, name: answer_to(request, body=text)
        )

    def fence(self, make: Callable[[str], FencedStatus]) -> None:
        """Make the groups fenced."""
        self.bodies(RequestCode.FENCED_STATUS, make)
        self.bodies(
            RequestCode.GET_BROKER_EPOCH_CACHE,
            lambda name: EpochEntryCache(
                broker_id=0,
                broker_name=name,
                cluster_name="c",
                epoch_list=[EpochEntryBody(900, 1, 0), EpochEntryBody(9_000, 4, 900)],
                max_offset=9_000,
            ),
        )

    def _query(self, request: RemotingCommand, name: str) -> RemotingCommand:
        topic = request.ext_fields()["topic"]
        return records(
            request, *(each for each in self.indexed if each.topic == topic and name == "broker-a")
        )

    def _view(self, request: RemotingCommand, name: str) -> RemotingCommand:
        offset = int(request.ext_fields()["offset"])
        found = [
            each for each in self.indexed if each.physical_offset == offset and name == "broker-a"
        ]
        if not found:
            return answer_to(request, ResponseCode.SYSTEM_ERROR, remark="can not find message")
        return records(request, *found)


def status(name: str = "broker-a", **facts: object) -> FencedStatus:
    """What a node of a fenced group says of itself."""
    away = ReplicaStatus(name=f"{name}-3", written=500, flushed=500, trouble="its process ended")
    known = {
        "node": f"{name}-1",
        "group": name,
        "role": "MASTER",
        "epoch": 4,
        "log_epoch": 4,
        "master": f"{name}-1",
        "incarnation": "i",
        "promised": 4,
        "log_start": 0,
        "log_end": 9_000,
        "flushed": 9_000,
        "confirm": 9_000,
        "min_isr": 2,
        "ack_level": "written",
        "isr": [f"{name}-1", f"{name}-2"],
        "lease_left_ms": 1_000,
        "replicas": [away],
    }
    return FencedStatus(**{**known, **facts})  # type: ignore[arg-type]
