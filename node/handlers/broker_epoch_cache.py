"""GET_BROKER_EPOCH_CACHE: which master wrote which part of the log of a fenced group."""

from __future__ import annotations

from typing import Protocol

from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.route import MASTER_ID, encode_json_body
from tandem.wire.stats_requests import EpochEntryBody, EpochEntryCache


class Replica(Protocol):
    """What this request needs to know of a `FencedHAService`."""

    @property
    def is_master(self) -> bool:
        """Whether clients are to send to this node."""

    def epoch_list(self) -> list[EpochEntryBody]:
        """Which master wrote which part of the log."""


class BrokerEpochCache:
    """Serves that request for a node of a fenced group."""

    def __init__(self, config: NodeConfig, replica: Replica) -> None:
        self._config = config
        self._replica = replica

    @serves(
        RequestCode.GET_BROKER_EPOCH_CACHE,
        (Resource.REPLICATION, Action.READ),
        of_cluster(Right.GET),
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_EPOCH_CACHE. Source: AdminBrokerProcessor.getBrokerEpochCache."""
        node, epochs = self._config.node, self._replica.epoch_list()
        body = EpochEntryCache(
            broker_id=MASTER_ID if self._replica.is_master else node.broker_id,
            broker_name=node.group,
            cluster_name=self._config.cluster.cluster.name,
            epoch_list=epochs,
            max_offset=epochs[-1].end_offset if epochs else 0,
        )
        return response_to(command, body=encode_json_body(body))
