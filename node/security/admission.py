"""RocketMQ's own brokers: known by their addresses, for they cannot sign.

An address on a network is weaker than a secret. So an admitted broker may register and unregister
itself, and nothing else: under no id and no address of a node of ours, in the group of ours whose
log it copies without topics, for those are what our nodes say. In a classic group it may be in the
place of one of its nodes, at that one's address: then it registers under that one's id.
"""

from __future__ import annotations

import enum

import msgspec

from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.settings import NodeSettings
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from tandem.wire.route import MASTER_ID

Registered = RegisterBrokerRequestHeader | UnregisterBrokerRequestHeader

REGISTRATIONS = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER)

_BODY_FIELDS = ("bodyCrc32", "compressed")


class NotOwn(enum.Enum):
    """What of a registration a broker may not say."""

    BROKER = enum.auto()
    """The cluster file does not admit it."""
    ADDRESS = enum.auto()
    """It names another address than the one that it dials from."""
    NODE_ADDRESS = enum.auto()
    """It names the address of a node."""
    CLUSTER = enum.auto()
    """It names another cluster."""
    BROKER_ID = enum.auto()
    """It names the broker id of another."""


class NotAdmittedError(Exception):
    """A registration without a signature is not taken; the text says why and what to do.

    Attributes:
        cause: What of it may not be.
    """

    def __init__(self, text: str, cause: NotOwn) -> None:
        super().__init__(text)
        self.cause = cause


class Admission:
    """Which brokers a cluster file admits, and as what."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._admitted = config.security.admitted_brokers | {
            (name, address) for name, group in config.groups.items() for address in group.learners
        }
        self._node_addresses = frozenset(node.broker_address for node in config.nodes)

    def own_registration(self, command: RemotingCommand, ip: str) -> RemotingCommand:
        """Return what a broker at `ip` may say of itself out of what it does say.

        Raises:
            NotAdmittedError: It says something of others, or is not admitted.
            WireError: The header is malformed.
        """
        header: Registered
        if command.code == RequestCode.REGISTER_BROKER:
            header = command.decode_header(RegisterBrokerRequestHeader)
        else:
            header = command.decode_header(UnregisterBrokerRequestHeader)
        if (header.broker_name, ip) not in self._admitted:
            raise NotAdmittedError(
                f"broker {header.broker_name!r} at {ip} is not admitted: a node has to know the"
                " secret of the cluster; a RocketMQ broker has to be in the cluster file, under"
                " security.rocketmq_brokers as NAME@ADDRESS or as a learner",
                NotOwn.BROKER,
            )
        complaint = self._complaint(header, ip)
        if complaint is not None:
            cause, why = complaint
            raise NotAdmittedError(
                f"broker {header.broker_name!r} at {ip} may register itself only: {why}", cause
            )
        if header.broker_name in self._config.groups and not self._place(header.broker_name, ip):
            return _without_topics(command)
        return command

    def _complaint(self, header: Registered, ip: str) -> tuple[NotOwn, str] | None:
        """What of a registration is not the broker's own, in words; None if nothing is."""
        if header.broker_addr.rpartition(":")[0] != ip:
            why = f"its address {header.broker_addr!r} is not the one that it dials from"
            return NotOwn.ADDRESS, why
        place = self._place(header.broker_name, ip)
        own_address = place.broker_address if place else ""
        if header.broker_addr in self._node_addresses - {own_address}:
            why = f"{header.broker_addr} is the address of a node of this cluster"
            return NotOwn.NODE_ADDRESS, why
        if header.broker_name not in self._config.groups:
            return None
        if header.cluster_name != self._config.cluster.name:
            why = f"cluster {header.cluster_name!r} is not this one, {self._config.cluster.name}"
            return NotOwn.CLUSTER, why
        why_not_id = self._complaint_about_id(header, place)
        return (NotOwn.BROKER_ID, why_not_id) if why_not_id is not None else None

    def _complaint_about_id(self, header: Registered, place: NodeSettings | None) -> str | None:
        if place is not None:
            if header.broker_id == place.broker_id:
                return None
            return f"at this address is {place.name}, with broker id {place.broker_id}"
        taken = {node.broker_id for node in self._config.group_nodes(header.broker_name)}
        if header.broker_id not in taken | {MASTER_ID}:
            return None
        return (
            f"broker id {header.broker_id} belongs to a node of group {header.broker_name};"
            " give it a brokerId that no node has"
        )

    def _place(self, name: str, ip: str) -> NodeSettings | None:
        """The node of a classic group in whose place a broker at `ip` is."""
        group = self._config.groups.get(name)
        if group is None or group.kind is not GroupKind.CLASSIC:
            return None
        return next((n for n in self._config.group_nodes(name) if n.address == ip), None)


def _without_topics(command: RemotingCommand) -> RemotingCommand:
    fields = command.ext_fields()
    for name in _BODY_FIELDS:
        fields.pop(name, None)
    return msgspec.structs.replace(command, ext=fields, body=b"")
