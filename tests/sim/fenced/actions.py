"""What each verb does that only plans of fenced groups have; see `engine.faults`."""

from collections.abc import Callable
from typing import Final

from tandem.wire.feature_level import LEVEL_MAX
from tests.sim.engine.actions import ACTIONS
from tests.sim.engine.faults import BLACKOUT, MASTER
from tests.sim.fenced.cluster import FencedCluster
from tests.sim.fenced.disk import lose_epochs


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
        cluster.set_back(cluster.saved)


def _promote(cluster: FencedCluster, name: str) -> None:
    master = cluster.resolved_name(MASTER)
    cluster.operator.order(cluster.nodes[master], "promote", name)


def _raise_features(cluster: FencedCluster) -> None:
    cluster.operator.order(cluster.nodes[cluster.resolved_name(MASTER)], "raise-features")


FENCED_ACTIONS: Final[dict[str, Callable[..., None]]] = {
    **ACTIONS,
    "freeze-at-event": _freeze_at_event,
    "kill-at-event": _kill_at_event,
    "late-vote": _late_vote,
    BLACKOUT: lambda cluster: cluster.black_out(),
    "flip-tail": lambda cluster, name: cluster.spoil(name),
    "rot-through": lambda cluster, name, kind: cluster.rot_through(name, kind),
    "rot-bare": lambda cluster, name, kind: cluster.rot_bare(name, kind),
    "rot-twin": lambda cluster, name, kind: cluster.rot_twin(name, kind),
    "scrub": lambda cluster, name: cluster.operator.order(cluster.nodes[name], "scrub"),
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
    "keep-copy": lambda cluster, name: cluster.keep_copy(name),
    "put-back": lambda cluster, name: cluster.put_back(name),
    "recover-group": lambda cluster: cluster.operator.begin_recover(),
    "lose-epochs": lambda cluster, name: lose_epochs(cluster.nodes[name]),
    "upgrade": lambda cluster, name: cluster.change_version(name, LEVEL_MAX),
    "downgrade": lambda cluster, name: cluster.change_version(name, LEVEL_MAX - 1),
    "raise-features": _raise_features,
    "save-coordinator": _save_coordinator,
    "restore-coordinator": _restore_coordinator,
}
