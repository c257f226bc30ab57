"""What operators and RocketMQ's brokers ask of a name server, beside routes.

    PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE
    WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER      no sends to a broker, and again
    DELETE_TOPIC_IN_NAMESRV                                  brokers say themselves which they have
    GET_TOPICS_BY_CLUSTER, GET_SYSTEM_TOPIC_LIST_FROM_NS, GET_UNIT_TOPIC_LIST and its kin
    QUERY_DATA_VERSION, BROKER_HEARTBEAT, GET_BROKER_MEMBER_GROUP
    GET_NAMESRV_CONFIG, UPDATE_NAMESRV_CONFIG

Source: RocketMQ 5.3.3, DefaultRequestProcessor, ClientRequestProcessor.
"""

from __future__ import annotations

import logging

import trio

from node.errors import RequestError
from node.name_server.route_table import RouteTable
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from node.tables.kv_config_table import KvConfigTable
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import settings_of
from tandem.wire.name_server_headers import (
    AddWritePermResponseHeader,
    BrokerHeartbeatRequestHeader,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    KvRequestHeader,
    KvResponseHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    SystemTopicList,
    WipeWritePermResponseHeader,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import DataVersion, KVTable
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, decode_json_body, encode_json_body

_log = logging.getLogger(__name__)


class NameServerAdmin:
    """Serves what is kept beside the routes of one name server, and looks into them."""

    def __init__(self, routes: RouteTable, values: KvConfigTable, listen_port: int) -> None:
        """Serve these; `listen_port` is the port of the name server."""
        self._routes = routes
        self._values = values
        self._listen_port = listen_port

    @serves(
        RequestCode.PUT_KV_CONFIG,
        (Resource.VALUES, Action.WRITE),
        of_cluster(Right.UPDATE),
        header=KvRequestHeader,
    )
    def put_value(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG."""
        header = command.decode_header(KvRequestHeader)
        if not header.namespace or not header.key:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._values.put(header.namespace, header.key, header.value)
        return response_to(command)

    @serves(
        RequestCode.GET_KV_CONFIG,
        (Resource.VALUES, Action.READ),
        of_cluster(Right.GET),
        header=KvRequestHeader,
    )
    def value(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG."""
        header = command.decode_header(KvRequestHeader)
        value = self._values.get(header.namespace, header.key)
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return response_to(command, ext=KvResponseHeader(value))

    @serves(
        RequestCode.DELETE_KV_CONFIG,
        (Resource.VALUES, Action.WRITE),
        of_cluster(Right.UPDATE),
        header=KvRequestHeader,
    )
    def delete_value(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG."""
        header = command.decode_header(KvRequestHeader)
        self._values.delete(header.namespace, header.key)
        return response_to(command)

    @serves(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        (Resource.VALUES, Action.READ),
        of_cluster(Right.GET),
        header=KvRequestHeader,
    )
    def values(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE."""
        namespace = command.decode_header(KvRequestHeader).namespace
        found = self._values.of_namespace(namespace)
        if not found:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return response_to(command, body=encode_json_body(KVTable(found)))

    @serves(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        (Resource.ROUTES, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=BrokerNameRequestHeader,
    )
    def wipe_write_perm(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER: nobody sends to it until it registers a change of topics."""
        name = command.decode_header(BrokerNameRequestHeader).broker_name
        count = self._routes.set_writable(name, is_writable=False)
        _log.warning("%d topics of %s are not written any more: %s", count, name, connection.peer)
        return response_to(command, ext=WipeWritePermResponseHeader(count))

    @serves(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        (Resource.ROUTES, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=BrokerNameRequestHeader,
    )
    def add_write_perm(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER."""
        name = command.decode_header(BrokerNameRequestHeader).broker_name
        count = self._routes.set_writable(name, is_writable=True)
        _log.warning("%d topics of %s can be written again: %s", count, name, connection.peer)
        return response_to(command, ext=AddWritePermResponseHeader(count))

    @serves(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.UPDATE),
    )
    def delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV: nothing to do.

        Brokers register which topics they have, so a topic that was deleted there is gone here.
        One that they still have has to stay: anybody can send this.
        """
        return response_to(command)

    @serves(
        RequestCode.GET_TOPICS_BY_CLUSTER,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
        header=ClusterRequestHeader,
    )
    def topics_of_cluster(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER."""
        cluster = command.decode_header(ClusterRequestHeader).cluster
        topics = self._routes.topics_of_cluster(cluster)
        return response_to(command, body=encode_json_body(TopicList(topics)))

    @serves(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
    )
    def system_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS: the names of clusters and brokers."""
        info = self._routes.cluster_info()
        names = [*info.cluster_addr_table, *info.broker_addr_table]
        brokers = info.broker_addr_table.values()
        addresses = [address for each in brokers for address in each.broker_addrs.values()]
        body = SystemTopicList(names, addresses[0] if addresses else None)
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_UNIT_TOPIC_LIST,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
    )
    @serves(
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
    )
    @serves(
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
    )
    def unit_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST and its kin: there are no units."""
        return response_to(command, body=encode_json_body(TopicList()))

    @serves(
        RequestCode.QUERY_DATA_VERSION,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.GET),
        header=QueryDataVersionRequestHeader,
    )
    def query_data_version(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """QUERY_DATA_VERSION: a broker asks whether it has to register its topics again."""
        header = command.decode_header(QueryDataVersionRequestHeader)
        known = self._routes.data_version(header.broker_addr)
        asked = decode_json_body(command.body, DataVersion) if command.body else DataVersion()
        return response_to(
            command,
            ext=QueryDataVersionResponseHeader(known != asked, header.takes_parts),
            body=b"" if known is None else encode_json_body(known),
        )

    # Of itself alone, by the connection that it registered by.
    @serves(
        RequestCode.BROKER_HEARTBEAT,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.UPDATE),
        header=BrokerHeartbeatRequestHeader,
    )
    def broker_heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT, of a RocketMQ broker that is registered by this connection."""
        header = command.decode_header(BrokerHeartbeatRequestHeader)
        self._routes.heard_of(header.broker_addr, connection, trio.current_time())
        return response_to(command)

    @serves(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.GET),
        header=BrokerNameRequestHeader,
    )
    def member_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_MEMBER_GROUP: the live brokers of one name."""
        header = command.decode_header(BrokerNameRequestHeader)
        broker = self._routes.cluster_info().broker_addr_table.get(header.broker_name)
        addresses = {} if broker is None else broker.broker_addrs
        group = BrokerMemberGroup(addresses, header.broker_name, header.cluster_name or "")
        return response_to(command, body=encode_json_body(BrokerMemberGroupBody(group)))

    @serves(
        RequestCode.GET_NAMESRV_CONFIG,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.GET),
    )
    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG: what cannot be set here, in RocketMQ's names. No paths."""
        return response_to(command, body=self._config())

    def _config(self) -> bytes:
        return (
            b"clusterTest=false\n"
            b"deleteTopicWithBrokerRegistration=true\n"
            b"listenPort=%d\n"
            b"notifyMinBrokerIdChanged=false\n"
            b"orderMessageEnable=false\n"
            b"supportActingMaster=false\n" % self._listen_port
        )

    # Refused, for every sender.
    @serves(
        RequestCode.UPDATE_NAMESRV_CONFIG,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.UPDATE),
    )
    def update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: to say what is so, is no change; anything else is refused."""
        known = settings_of(self._config())
        if all(known.get(key) == value for key, value in settings_of(command.body).items()):
            return response_to(command)
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            "a name server of TandemMQ has nothing that can be set while it runs; its settings are"
            " those of its cluster file",
        )
