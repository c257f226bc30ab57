"""A replica that has lost all of its log begins anew, as another replica, with an empty store.

    no file of the log is there, and something says that there were some
        another incarnation   what was acknowledged under the old one counts for nobody any more
        set-aside.json        queues, index, checkpoint and epochs go to set-aside/
        the store is opened   empty; the log is copied from the master

The name goes first: an empty log under the old one would count as having everything. Interrupted,
the next start does the same again. From then on it is as with a machine that has got a new disk:
the replica is in no in-sync set and cannot win an election until it has caught up and was added
anew. If too many have lost their logs for anybody to show what was acknowledged, nobody is elected,
and an operator is asked.

A log on a disk that is not mounted looks the same, so the line in the log says where it was looked
for. Nothing is changed there.
"""

from __future__ import annotations

import logging

from ha.fenced.config import FencedConfig
from ha.fenced.replica_file import ReplicaFile
from store.config import StoreConfig
from store.machine.machine import Machine
from store.recovery.lost_log import why_log_is_lost
from store.recovery.truncation import want_set_aside

_log = logging.getLogger(__name__)


def begin_anew_if_log_is_lost(
    config: FencedConfig, store_config: StoreConfig, machine: Machine
) -> bool:
    """See to a store without a log, before it is opened; return whether it had lost one.

    Raises:
        StoreLockedError: another process has it open.
        StoreError: it cannot be written down; the store is as it was.
    """
    disk, directory = machine.disk, store_config.directory
    if not why_log_is_lost(store_config, disk):
        return False
    release = disk.lock(f"{directory}/lock")
    try:
        # Another process may have had it open until now, and have put the first message there.
        reason = why_log_is_lost(store_config, disk)
        if not reason:
            return False
        replica = ReplicaFile(disk, config.directory, machine.random)
        before = replica.incarnation or "unknown"
        if replica.incarnation:
            replica.renew()
        name = f"lost-log-{machine.random.getrandbits(64):016x}"
        want_set_aside(disk, directory, name)
    finally:
        release()
    _log.error(
        "no file of the log is in %s, but %s: all of it is lost. What is left of the store goes to"
        " set-aside/%s, and the log is copied from the group, under another incarnation (it was"
        " %s). If the log is on a disk that is not mounted, stop this node, mount it, and start"
        " again",
        *(", ".join(store_config.commit_log_directories), reason, name, before),
    )
    return True
