"""Header records and bodies of what operators and brokers ask of name servers, beside routes."""

from __future__ import annotations

from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import Body, Header


class KvRequestHeader(Header, frozen=True):
    """PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE."""

    namespace: str
    key: str = ""
    value: str = ""


class KvResponseHeader(Header, frozen=True):
    """GET_KV_CONFIG."""

    value: str


class BrokerNameRequestHeader(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER, GET_BROKER_MEMBER_GROUP."""

    broker_name: str
    cluster_name: str | None = None


class WipeWritePermResponseHeader(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


class AddWritePermResponseHeader(Header, frozen=True):
    """ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class ClusterRequestHeader(Header, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class QueryDataVersionRequestHeader(Header, frozen=True):
    """QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    takes_parts: bool | None = None
    """Ours: say whether tables can be registered in parts."""


class QueryDataVersionResponseHeader(Header, frozen=True):
    """QUERY_DATA_VERSION: whether what the name server has is older."""

    changed: bool
    takes_parts: bool | None = None
    """Ours: whether registrations may have a `part`. Said to who asks."""


class BrokerHeartbeatRequestHeader(Header, frozen=True):
    """BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str


class BrokerMemberGroup(Body, frozen=True):
    """The live brokers of one name."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str


class BrokerMemberGroupBody(Body, frozen=True):
    """Body of the answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup


class SystemTopicList(Body, frozen=True):
    """Body of the answer to GET_SYSTEM_TOPIC_LIST_FROM_NS; the address is of any broker."""

    topic_list: list[str]
    broker_addr: str | None = None
