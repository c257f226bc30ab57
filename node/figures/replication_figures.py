"""Figures of replication: what this node is in its group, and as master how far the others are."""

from __future__ import annotations

from collections.abc import Iterator

from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.sources import Sources


def replication_figures(sources: Sources) -> Iterator[Figure]:
    """Yield them, as far as this node knows."""
    replication, standing = sources.replication, sources.replication.replica_standing()
    yield Figure("tandem_role", Labels(role=standing.role.lower()), 1)
    yield _own("tandem_takes_messages", int(sources.why_refused is None))
    if replication.epoch:
        yield _own("tandem_epoch", replication.epoch)
    for name, value in (
        ("tandem_in_sync_replicas", standing.in_sync),
        ("tandem_in_sync_replicas_needed", standing.needed),
        ("tandem_lease_left_seconds", standing.lease_left_seconds),
        ("tandem_feature_level", standing.feature_level),
        ("tandem_late_keep_alives_total", standing.late_keep_alives),
        ("tandem_not_run_seconds", standing.not_run_seconds),
    ):
        if value is not None:
            yield _own(name, value)
    if standing.switched_at_ms:
        cause = Labels(cause=standing.switch_cause)
        at = standing.switched_at_ms / 1000
        yield Figure("tandem_last_switch_timestamp_seconds", cause, at)
    yield from _others(sources)
    if replication.is_master:
        yield from _unconfirmed(sources)


def _others(sources: Sources) -> Iterator[Figure]:
    info = sources.replication.runtime_info()
    if not info.master:
        return
    for other in info.ha_connection_info:
        labels = Labels(replica=other.name or other.addr)
        is_known = other.slave_ack_offset >= 0
        yield Figure("tandem_replica_in_sync", labels, int(other.in_sync))
        yield Figure("tandem_replica_connected", labels, int(is_known))
        if is_known:
            yield Figure("tandem_replica_lag_bytes", labels, other.diff)


def _unconfirmed(sources: Sources) -> Iterator[Figure]:
    store = sources.store
    confirmed, end = store.confirm_offset, store.max_physical_offset
    yield _own("tandem_confirm_lag_bytes", end - confirmed)
    if confirmed >= end:
        yield _own("tandem_confirm_lag_seconds", 0)
    elif (stored_ms := store.commit_log.store_timestamp_ms(confirmed)) > 0:
        late_ms = max(0, sources.wall_clock_ms() - stored_ms)
        yield _own("tandem_confirm_lag_seconds", late_ms / 1000)


def _own(name: str, value: float) -> Figure:
    return Figure(name, NO_LABELS, value)
