"""HAService: the replication of one node of a classic group, as its broker sees it.

    master:  SlaveServer     listens, sends the log, counts acknowledgements
    slave:   MasterFollower  dials, checks, appends, reports

cluster.yaml says which of the two a node is and does not change while it runs. So there
is one round, no epoch, and no quarantine.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ha.classic.config import HAConfig, SlaveNode
from ha.classic.group_transfer_service import GroupTransferService
from ha.classic.master_follower import MasterFollower
from ha.classic.slave_server import SlaveServer
from ha.replication import ReplicationListener
from ha.results import Ack, PutWait, Refusal, ReplicaStanding
from store import MessageStore
from store.machine.network import Network
from tandem.wire.request_headers import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from tandem.wire.response_code import ResponseCode


class HAService:
    """Replication of one store; a `Replication`. Its owner opens and closes store and network."""

    is_quarantined = False
    epoch = 0

    def __init__(
        self,
        config: HAConfig,
        store: MessageStore,
        network: Network,
        *,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._wall_clock_ms = wall_clock_ms
        self._listener: ReplicationListener | None = None
        self.group_transfer_service = GroupTransferService(
            [slave.name for slave in config.slaves],
            max_gap_bytes=config.ha_max_gap_not_in_sync_bytes,
            in_sync_replicas=config.in_sync_replicas,
            after_release=self._answered,
        )
        """Where the puts of a master wait. Idle on a slave."""
        self.is_master = config.master is None
        self._refusal = None if self.is_master else _slave_refusal(config)
        self._wait = self._wait_for_slaves() if self.is_master and config.is_sync_master else None
        self._service: SlaveServer | MasterFollower
        if config.master is None:
            self._service = SlaveServer(config, store, network, self.group_transfer_service)
        else:
            self._service = MasterFollower(config, store, network)

    async def run(
        self,
        listener: ReplicationListener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Replicate until cancelled. Started once a master takes messages and listens.

        Raises:
            StoreError: the broker of a master could not begin.
            AddressInUseError: something else listens on the HA port.
        """
        self._listener = listener
        if self.is_master:
            listener.opened(self.epoch)
        await self._service.run(task_status=task_status)

    def _answered(self) -> None:
        if self._listener is not None:
            self._listener.answered()

    def refusal(self) -> Refusal | None:
        """Return why no put is taken: this node is a slave. None: it is the master."""
        return self._refusal

    def why_behind(self) -> str | None:
        """Return why this node may not have everything: it is a slave. None: it is the master."""
        if self._config.master is None:
            return None
        return f"this broker is a slave; the master is {self._config.master_for_clients}"

    def waits(self, ack: Ack) -> PutWait | None:
        """Return the wait for slaves of a SYNC_MASTER, whatever `ack` says; None of others."""
        return self._wait

    def why_not_served(self) -> str:
        """Return "": a node of a classic group is never in quarantine."""
        return ""

    def _wait_for_slaves(self) -> PutWait:
        transfer = self.group_transfer_service
        return PutWait(
            transfer.submit,
            lambda: transfer.replicated_offset,
            self._config.slave_timeout_ms / 1000,
        )

    def replica_standing(self) -> ReplicaStanding:
        """Return what this node is: the cluster file says which of two things."""
        service = self._service
        if isinstance(service, MasterFollower):
            # A master of a classic group does not say where its log ends.
            return ReplicaStanding(role="SLAVE", follows=service.is_following)
        in_sync = self.group_transfer_service.in_sync_slave_count(self._store.max_physical_offset)
        return ReplicaStanding(role="MASTER", in_sync=1 + in_sync)

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of replication: the answer to GET_BROKER_HA_STATUS.

        Source: HAService.getRuntimeInfo. Slaves that are not connected are listed too, with -1 as
        what they acknowledged, and every slave carries why it is not in sync.
        """
        service = self._service
        if isinstance(service, MasterFollower):
            return HARuntimeInfo(
                master=False,
                master_commit_log_max_offset=0,
                ha_client_runtime_info=self._client_info(service),
                damage=self._store.commit_log.damage.in_words(),
            )
        log_end, refusal = self._store.max_physical_offset, self._store.refusal
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=log_end,
            in_sync_slave_nums=self.group_transfer_service.in_sync_slave_count(log_end),
            ha_connection_info=[
                self._connection_info(service, slave, log_end) for slave in self._config.slaves
            ],
            damage=self._store.commit_log.damage.in_words(),
            refusal="" if refusal is None else refusal.text,
        )

    def _connection_info(
        self, server: SlaveServer, slave: SlaveNode, log_end: int
    ) -> HAConnectionRuntimeInfo:
        reason = self.group_transfer_service.why_not_in_sync(slave.name, log_end)
        position = self.group_transfer_service.slaves[slave.name].position
        link = server.links.get(slave.name)
        rate = link.traffic.rate.in_last_second(trio.current_time()) if link else 0
        return HAConnectionRuntimeInfo(
            addr=str(link.peer) if link else slave.address,
            slave_ack_offset=link.connection.slave_ack_offset if link else -1,
            diff=log_end - max(position, 0),
            in_sync=reason is None,
            transferred_byte_in_second=rate,
            transfer_from_where=link.connection.next_offset if link else -1,
            name=slave.name,
            reason=reason or "",
        )

    def _client_info(self, follower: MasterFollower) -> HAClientRuntimeInfo:
        return HAClientRuntimeInfo(
            master_addr=str(self._config.master),
            transferred_byte_in_second=follower.traffic.rate.in_last_second(trio.current_time()),
            max_offset=self._store.max_physical_offset,
            last_read_timestamp=self._wall_ms(follower.traffic.last_read),
            last_write_timestamp=self._wall_ms(follower.traffic.last_write),
        )

    def _wall_ms(self, time_seconds: float) -> int:
        return self._wall_clock_ms() - int((trio.current_time() - time_seconds) * 1000)


def _slave_refusal(config: HAConfig) -> Refusal:
    """Source of the code and of the first word: NettyRemotingAbstract, rejectRequest."""
    return Refusal(
        ResponseCode.SYSTEM_BUSY,
        "[REJECTREQUEST]this broker is a slave and takes no messages;"
        f" send to the master {config.master_for_clients}",
    )
