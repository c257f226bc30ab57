"""RocketMQ's own brokers: known by their addresses, for they cannot sign.

An address on a network is weaker than a secret. So an admitted broker may register and unregister
itself, and nothing else: under no id and no address of a node of ours, in the group of ours whose
log it copies without topics, for those are what our nodes say. In a classic group it may be in the
place of one of its nodes, at that one's address: then it registers under that one's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tandem.cluster_file.choices import GroupKind
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from tandem.wire.route import MASTER_ID

if TYPE_CHECKING:
    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.cluster_file.settings import NodeSettings
    from tandem.wire.remoting_command import RemotingCommand

    Registered = RegisterBrokerRequestHeader | UnregisterBrokerRequestHeader

REGISTRATIONS = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER)

_BODY_FIELDS = ("bodyCrc32", "compressed")


class NotAdmittedError(Exception):
    """A registration without a signature is not taken; the text says why and what to do."""


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
                " security.rocketmq_brokers as NAME@ADDRESS or as a learner"
            )
        complaint = self._complaint(header, ip)
        if complaint is not None:
            raise NotAdmittedError(
                f"broker {header.broker_name!r} at {ip} may register itself only: {complaint}"
            )
        if header.broker_name in self._config.groups and not self._place(header.broker_name, ip):
            return _without_topics(command)
        return command

    def _complaint(self, header: Registered, ip: str) -> str | None:
        """What of a registration is not the broker's own, in words; None if nothing is."""
        if header.broker_addr.rpartition(":")[0] != ip:
            return f"its address {header.broker_addr!r} is not the one that it dials from"
        place = self._place(header.broker_name, ip)
        own_address = place.broker_address if place else ""
        if header.broker_addr in self._node_addresses - {own_address}:
            return f"{header.broker_addr} is the address of a node of this cluster"
        if header.broker_name not in self._config.groups:
            return None
        if header.cluster_name != self._config.cluster.name:
            return f"cluster {header.cluster_name!r} is not this one, {self._config.cluster.name}"
        return self._complaint_about_id(header, place)

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
