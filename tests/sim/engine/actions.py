"""What each verb of a plan does to the machines; see `engine.faults` for the language."""

from collections.abc import Callable
from typing import Final

import trio

from tests.sim.engine.cluster import SimulatedCluster

HA_CHANNEL: Final = "/ha"
"""Replication links of fenced groups are apart from the others between the same two machines."""


def _kill_at(verb: str) -> Callable[[SimulatedCluster, str, str], None]:
    def kill_at(cluster: SimulatedCluster, name: str, count: str) -> None:
        cluster.nodes[name].kill_at = (verb, int(count))

    return kill_at


def _stall(cluster: SimulatedCluster, source: str, target: str) -> None:
    cluster.note_hit("stall")
    for channel in cluster.channels:
        for ends in cluster.ends(source, target, channel):
            cluster.network.stall(*ends)


def _stall_ha(cluster: SimulatedCluster, source: str, target: str) -> None:
    cluster.note_hit("stall-ha")
    for ends in cluster.ends(source, target, HA_CHANNEL):
        cluster.network.stall(*ends)


def _stall_peers(cluster: SimulatedCluster, source: str, target: str) -> None:
    cluster.note_hit("stall-peers")
    for ends in cluster.ends(source, target):
        cluster.network.stall(*ends)


def _heal_peers(cluster: SimulatedCluster, source: str, target: str) -> None:
    for ends in cluster.ends(source, target):
        cluster.network.heal(*ends)


def _heal(cluster: SimulatedCluster, source: str, target: str) -> None:
    for channel in cluster.channels:
        for ends in cluster.ends(source, target, channel):
            cluster.network.heal(*ends)


def _heal_ha(cluster: SimulatedCluster, source: str, target: str) -> None:
    for ends in cluster.ends(source, target, HA_CHANNEL):
        cluster.network.heal(*ends)


def _slow(cluster: SimulatedCluster, source: str, target: str, delay: str, rate: str) -> None:
    cluster.note_hit("slow")
    for channel in cluster.channels:
        for ends in cluster.ends(source, target, channel):
            cluster.network.slow(*ends, delay_seconds=float(delay), bytes_per_second=float(rate))


def _cut(cluster: SimulatedCluster, one: str, other: str) -> None:
    cluster.note_hit("cut")
    cluster.network.cut(cluster.ip_of(one), cluster.ip_of(other))


def _half_cut(cluster: SimulatedCluster, one: str, other: str) -> None:
    cluster.note_hit("half-cut")
    cluster.network.cut(cluster.ip_of(one), cluster.ip_of(other), half_open=True)


def _flip_wire(cluster: SimulatedCluster, source: str, target: str) -> None:
    ends = (cluster.ip_of(source), cluster.ip_of(target))
    cluster.flips[ends] = cluster.flips.get(ends, 0) + 1


def _fill_disk(cluster: SimulatedCluster, name: str) -> None:
    cluster.note_hit("disk-full")
    node = cluster.nodes[name]
    node.disk_was_hurt = True
    node.disk.capacity_bytes = node.disk.used_bytes


def _slow_disk(cluster: SimulatedCluster, name: str, seconds: str) -> None:
    cluster.note_hit("disk-slow")
    sync_seconds = float(seconds)
    cluster.nodes[name].disk.sync_seconds = lambda: sync_seconds


def _break_disk(cluster: SimulatedCluster, name: str) -> None:
    cluster.note_hit("disk-fails")
    node = cluster.nodes[name]
    node.disk_was_hurt = node.sync_has_failed = node.disk.sync_fails = True


def _step_clock(cluster: SimulatedCluster, name: str, milliseconds: str) -> None:
    cluster.note_hit("clock")
    cluster.nodes[name].clock.step(int(milliseconds))


def _suspend(cluster: SimulatedCluster, name: str, seconds: str) -> None:
    cluster.note_hit("boottime")
    cluster.nodes[name].boot_clock.suspend(float(seconds))


def _rot(cluster: SimulatedCluster, name: str, kind: str) -> None:
    cluster.rot(name, kind)


def _quiet(cluster: SimulatedCluster, seconds: str) -> None:
    cluster.quiet_until = trio.current_time() + float(seconds)


ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "kill": lambda cluster, name: cluster.kill(name),
    "kill-at-disk": _kill_at("kill-at-disk"),
    "kill-at-send": _kill_at("kill-at-send"),
    "kill-at-coordinator": _kill_at("kill-at-coordinator"),
    "power-off": lambda cluster, name: cluster.power_off(name),
    "stop": lambda cluster, name: cluster.stop(name),
    "start": lambda cluster, name: cluster.start(name),
    "wipe": lambda cluster, name: cluster.wipe(name),
    "freeze": lambda cluster, name, seconds: cluster.freeze(name, float(seconds)),
    "stall": _stall,
    "heal": _heal,
    "stall-ha": _stall_ha,
    "heal-ha": _heal_ha,
    "stall-peers": _stall_peers,
    "heal-peers": _heal_peers,
    "slow": _slow,
    "cut": _cut,
    "half-cut": _half_cut,
    "flip-wire": _flip_wire,
    "garbage": lambda cluster, name, ip: cluster.send_garbage(name, ip),
    "disk-full": _fill_disk,
    "disk-slow": _slow_disk,
    "disk-fails": _break_disk,
    "disk-ok": lambda cluster, name: cluster.heal_disk(cluster.nodes[name]),
    "clock": _step_clock,
    "rot": _rot,
    "boottime": _suspend,
    "quiet": _quiet,
}
"""The arguments of a line come as they are written, with roles resolved."""
