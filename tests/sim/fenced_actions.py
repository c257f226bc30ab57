"""What a line of a plan does to a fenced group; see `tests.sim.faults` for the language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from tests.sim.fenced_disk import lose_epochs
from tests.sim.fenced_faults import MASTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.fenced_cluster import FencedCluster

HA_CHANNEL: Final = "/ha"
"""Replication links are apart from the others between the same two machines."""


def _stall(
    cluster: FencedCluster, source: str, target: str, channels: tuple[str, ...] = ("", HA_CHANNEL)
) -> None:
    cluster.note_hit("stall" if "" in channels else "stall-ha")
    for channel in channels:
        for ends in cluster.ends((source, target), channel):
            cluster.network.stall(*ends)


def _heal(
    cluster: FencedCluster, source: str, target: str, channels: tuple[str, ...] = ("", HA_CHANNEL)
) -> None:
    for channel in channels:
        for ends in cluster.ends((source, target), channel):
            cluster.network.heal(*ends)


def _slow(cluster: FencedCluster, source: str, target: str, delay: str, rate: str) -> None:
    cluster.note_hit("slow")
    for channel in ("", HA_CHANNEL):
        for ends in cluster.ends((source, target), channel):
            cluster.network.slow(*ends, delay_seconds=float(delay), bytes_per_second=float(rate))


def _quiet(cluster: FencedCluster, seconds: str) -> None:
    cluster.quiet_until = trio.current_time() + float(seconds)


def _kill_at_event(cluster: FencedCluster, name: str, event: str, count: str) -> None:
    def die() -> None:
        cluster.note_hit(f"kill-at-event {event}")
        cluster.kill(name)

    cluster.at_event(name, event, count, die)


def _freeze_at_event(
    cluster: FencedCluster, name: str, event: str, count: str, seconds: str
) -> None:
    def freeze() -> None:
        cluster.note_hit("freeze-at-event")
        cluster.freeze(name, float(seconds))

    cluster.at_event(name, event, count, freeze)


def _late_vote(cluster: FencedCluster, name: str, seconds: str) -> None:
    cluster.at_event(name, "Promised", "1", lambda: cluster.delay_vote(name, float(seconds)))


def _boottime(cluster: FencedCluster, name: str, seconds: str) -> None:
    cluster.note_hit("boottime")
    cluster.nodes[name].boot_clock.suspend(float(seconds))


def _flip_wire(cluster: FencedCluster, source: str, target: str) -> None:
    ends = (cluster.ip_of(source), cluster.ip_of(target))
    cluster.flips[ends] = cluster.flips.get(ends, 0) + 1


def _end_lease(cluster: FencedCluster, name: str) -> None:
    cluster.note_hit("revoke")
    cluster.coordinator.revoke_leases_of(cluster.group_keys.node(name))


def _change_leader(cluster: FencedCluster, seconds: str) -> None:
    cluster.note_hit("coordinator-leader")
    cluster.coordinator.change_leader(float(seconds))


def _stop_coordinator(cluster: FencedCluster) -> None:
    cluster.note_hit("coordinator-stop")
    cluster.coordinator.stop()


def _lose_replies(cluster: FencedCluster, name: str, count: str) -> None:
    cluster.note_hit("lose-replies")
    cluster.coordinator.lost_replies[cluster.nodes[name].ip] = int(count)


def _break_watches(cluster: FencedCluster) -> None:
    cluster.note_hit("break-watches")
    cluster.coordinator.break_watches()


def _delay_watches(cluster: FencedCluster, seconds: str) -> None:
    cluster.note_hit("late-watches")
    cluster.coordinator.watch_delay_seconds = float(seconds)


def _save_coordinator(cluster: FencedCluster) -> None:
    cluster.saved = cluster.coordinator.store.image()


def _restore_coordinator(cluster: FencedCluster) -> None:
    if cluster.saved is not None:
        cluster.coordinator.restore(cluster.saved)


def _promote(cluster: FencedCluster, name: str) -> None:
    master = cluster.resolved_name(MASTER)
    cluster.operator.order(cluster.nodes[master], "promote", name)


ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "stall": _stall,
    "heal": _heal,
    "stall-ha": lambda cluster, source, target: _stall(cluster, source, target, (HA_CHANNEL,)),
    "heal-ha": lambda cluster, source, target: _heal(cluster, source, target, (HA_CHANNEL,)),
    "slow": _slow,
    "freeze": lambda cluster, name, seconds: cluster.freeze(name, float(seconds)),
    "freeze-at-event": _freeze_at_event,
    "kill-at-event": _kill_at_event,
    "kill-at-coordinator": lambda cluster, name, count: setattr(
        cluster.nodes[name], "kill_at", ("kill-at-coordinator", int(count))
    ),
    "quiet": _quiet,
    "late-vote": _late_vote,
    "boottime": _boottime,
    "flip-wire": _flip_wire,
    "flip-tail": lambda cluster, name: cluster.spoil(name),
    "promote": _promote,
    "resign": lambda cluster, name: cluster.operator.order(cluster.nodes[name], "resign"),
    "rejoin": lambda cluster, name: cluster.operator.order(cluster.nodes[name], "rejoin"),
    "revoke": _end_lease,
    "coordinator-leader": _change_leader,
    "coordinator-stop": _stop_coordinator,
    "coordinator-start": lambda cluster: cluster.coordinator.start(),
    "lose-replies": _lose_replies,
    "break-watches": _break_watches,
    "late-watches": _delay_watches,
    "lose-epochs": lambda cluster, name: lose_epochs(cluster.nodes[name]),
    "save-coordinator": _save_coordinator,
    "restore-coordinator": _restore_coordinator,
}
