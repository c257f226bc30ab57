"""How a group goes to a higher feature level: by an order, when all members are there and know it.

    what each member knows   its node record, which is there while it lives
    the level                in `state`, by one compare-and-swap, as every change of it

Nothing goes back: from then on the group writes what older versions cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from ha.fenced.config import FencedConfig
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.master import FencedMaster
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.feature_level import LEVEL_MIN, feature_level
from tandem.wire.group_state import NodeRecord
from tandem.wire.ha_status import FencedCommandResult

_log = logging.getLogger(__name__)


def why_not_raised(
    members: Sequence[str], nodes: Mapping[str, NodeRecord], wanted: int, level_max: int
) -> str | None:
    """Return why a group cannot go to level `wanted`, in words; None if it can.

    `level_max` is the highest that its master knows.
    """
    missing = sorted(set(members) - set(nodes))
    if missing:
        return (
            f"{', '.join(missing)} {_is(missing)} not there: all members have to be, so that none"
            " is left that could not take part any more. Start what is missing, and ask again"
        )
    older = sorted(name for name in members if nodes[name].level_max < wanted)
    if older:
        runs = ", ".join(f"{name} runs {_program(nodes[name])}" for name in older)
        return (
            f"{runs}, which {'do' if len(older) > 1 else 'does'} not know feature level {wanted}:"
            f" upgrade {'them' if len(older) > 1 else 'it'}, and ask again"
        )
    if wanted > level_max:
        return f"this master knows no feature level above {level_max}"
    return None


def newest_known(members: Sequence[str], nodes: Mapping[str, NodeRecord]) -> int:
    """Return the highest level that a member knows who is there."""
    return max((nodes[name].level_max for name in members if name in nodes), default=LEVEL_MIN)


async def raise_level(
    config: FencedConfig, session: CoordinatorSession, master: FencedMaster, wanted: int
) -> FencedCommandResult:
    """Have the group go on at feature level `wanted`; 0 is the highest that a member knows."""
    members = [config.name, *(peer.name for peer in config.peers)]
    try:
        view = await session.refresh()
    except CoordinatorError as error:
        return _refused(f"nothing is known of the members, because the coordinator failed: {error}")
    current = master.state.level
    wanted = wanted or max(current, newest_known(members, view.nodes))
    if wanted == current:
        return FencedCommandResult(
            done=True, text=f"{config.group} is at feature level {current} already"
        )
    if wanted < current:
        return _refused(
            f"{config.group} is at feature level {current}, and goes to no lower one: an older"
            " version could not read what is in its log"
        )
    why_not = why_not_raised(members, view.nodes, wanted, config.level_max)
    if why_not is not None:
        return _refused(f"{config.group} stays at feature level {current}: {why_not}")
    return await _write(config, session, master, wanted)


async def _write(
    config: FencedConfig, session: CoordinatorSession, master: FencedMaster, wanted: int
) -> FencedCommandResult:
    if master.closed_because is not None:
        return _refused(f"{config.name} is no longer master: {master.closed_because}")
    if master.isr.outstanding:
        return _refused("a change of the in-sync set is under way; ask again")
    current = master.state.level
    state = msgspec.structs.replace(master.state, level=wanted, version=master.state.version + 1)
    try:
        result = await session.replace_state(
            state, state_revision=master.isr.revision, leader_revision=master.leader_revision
        )
    except CoordinatorError as error:
        return _refused(
            f"the coordinator did not answer, it may still happen: {error}; ask again: if it has"
            " happened, the answer says so"
        )
    if not result.succeeded:
        return _refused("the group's record has just changed; ask again")
    if master.closed_because is None:
        master.record_seen(state, result.revision)
    _log.warning(
        "%s is at feature level %d now (it was %d): a node has to be %s",
        config.group,
        wanted,
        current,
        feature_level(wanted).needs,
    )
    return FencedCommandResult(
        done=True,
        text=f"{config.group} is at feature level {wanted} now, it was at {current}; from now on a"
        f" node has to be {feature_level(wanted).needs}",
    )


def _program(node: NodeRecord) -> str:
    return f"TandemMQ {node.program}" if node.program else "a version from before feature levels"


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _refused(text: str) -> FencedCommandResult:
    return FencedCommandResult(done=False, text=text)
