"""Snapshots of a cluster, and what is kept between them: the switches that were seen. Pure."""

from typing import Any, Final

import msgspec

from tandem.views.classic_nodes import NodeReplication
from tandem.views.cluster_check import check
from tandem.views.cluster_look import ClusterLook
from tandem.views.group_view import GroupView

SWITCHES_MAX: Final = 50


class SeenSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """A change of master. `at_ms` is 0 if nobody says when."""

    group: str
    epoch: int
    master: str
    previous_master: str
    reason: str
    at_ms: int
    cause: str = ""
    """A value of `SwitchCause`; empty if it is not known."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cluster at one moment: the answer of /api/v1/cluster."""

    at_ms: int
    cluster: str
    verdict: str
    problems: list[str]
    groups: list[GroupView]
    classic_nodes: list[NodeReplication]
    switches: list[SeenSwitch]


class History:
    """Switches by group and epoch: the nodes know the last one alone."""

    def __init__(self) -> None:
        self._switches: dict[tuple[str, int], SeenSwitch] = {}

    def snapshot(self, look: ClusterLook, cluster: str, now_ms: int) -> Snapshot:
        """Return what was seen now, with the switches of before."""
        for group in look.groups:
            self._add(group)
        checked = check(look.classic_nodes, look.groups)
        is_empty = not look.classic_nodes and not look.groups
        return Snapshot(
            at_ms=now_ms,
            cluster=cluster,
            verdict="empty" if is_empty else checked.verdict,
            problems=checked.problems,
            groups=look.groups,
            classic_nodes=look.classic_nodes,
            switches=self._newest(),
        )

    def _add(self, group: GroupView) -> None:
        last = group.last_switch
        if group.epoch < 0 or not (last.reason or last.at_ms):
            return
        # Whose epoch it is, is not said while the next master is only elected.
        key = group.group, group.epoch
        known = self._switches.get(key)
        if known is not None and (known.master or not group.master):
            return
        self._switches[key] = SeenSwitch(
            group=group.group,
            epoch=group.epoch,
            master=group.master,
            previous_master=last.previous_master,
            reason=last.reason,
            at_ms=last.at_ms,
            cause=last.cause,
        )
        if len(self._switches) > SWITCHES_MAX:
            del self._switches[min(self._switches, key=lambda each: self._switches[each].at_ms)]

    def _newest(self) -> list[SeenSwitch]:
        found = self._switches.values()
        return sorted(found, key=lambda each: (each.at_ms, each.epoch), reverse=True)


def event(name: str, data: Any, event_id: str = "") -> bytes:  # noqa: ANN401  JSON
    """Return one event of a stream: JSON has no line ends, so it is one line of data."""
    lines = (
        b"event: " + name.encode(),
        *((b"id: " + event_id.encode(),) if event_id else ()),
        b"data: " + msgspec.json.encode(data),
    )
    return b"\n".join(lines) + b"\n\n"
