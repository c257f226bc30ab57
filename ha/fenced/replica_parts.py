"""What every part of one replica's round works with: one record, made by `FencedHAService`."""

from __future__ import annotations

import msgspec

from ha.fenced.config import FencedConfig
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.events import OnEvent
from ha.fenced.own_replica import OwnReplica
from ha.fenced.standing import Standing
from store import MessageStore
from store.machine.machine import Machine


class ReplicaParts(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, its store, its machine, and its session with the coordinator, for one round."""

    config: FencedConfig
    store: MessageStore
    machine: Machine
    session: CoordinatorSession
    replica: OwnReplica
    standing: Standing
    on_event: OnEvent
    """The watcher of this replica; `ignore` if there is none."""
