"""The orders of an operator to a fenced group: promote, resign, rejoin, scrub, recover-group.

Each order is refused where it would lose messages, by the node that would have to carry it out or,
for recover-group, by `tandem.wire.group_recovery`; the refusal says how much. Only `accept_loss`
overrules it. Nothing is asked back: an order is either safe or has been accepted beforehand.

    promote, resign    go to the present master, then it is waited for the next one
    rejoin             goes to the node itself, which sets its store aside and copies the log anew
    scrub              goes to the node itself, which looks at its log and heals what is bad
    raise-features     goes to the present master, which has the group go to a higher feature level
    recover-group      is written into the coordinator, as one transaction that compares everything
                       it was decided by; then it is waited for a master
"""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from tandem.client.errors import BrokerError, ClientError
from tandem.coordinator.interface import (
    Compare,
    CoordinatorError,
    CoordinatorUnavailableError,
    Put,
)
from tandem.views.fenced_group import FencedGroup, RecordStore
from tandem.views.group_view import GroupRecords, GroupView, Member
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.group_recovery import Group, Recovery, plan_recovery
from tandem.wire.group_state import (
    GroupKeys,
    GroupState,
    encode_record,
)
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    pass

POLL_SECONDS: Final = 0.2


class Came(enum.Enum):
    """What came of an order."""

    DONE = enum.auto()
    REFUSED = enum.auto()
    """By the node that would have to carry it out, or because of what it may lose."""
    OTHER_MASTER = enum.auto()
    """Another node than the one that was named has become master."""
    NO_NEW_MASTER = enum.auto()
    """It was carried out, and no node has become master in time."""
    NO_MASTER = enum.auto()
    """The group has no master that could carry it out."""
    OLD_RECORD = enum.auto()
    """A node says something else than its record in the coordinator."""
    SILENT_NODE = enum.auto()
    """A registered node does not say whether its record is true."""
    OVERTAKEN = enum.auto()
    """Something has changed while it was decided; nothing was written."""
    NOT_ASKED = enum.auto()
    """A node or the coordinator could not be asked, or refuses the request as such."""
    IN_DOUBT = enum.auto()
    """It was sent and not answered: it may have been carried out."""


_COULD_NOT_ASK: Final = frozenset({Came.NOT_ASKED, Came.IN_DOUBT})


class Outcome(msgspec.Struct, frozen=True):
    """What came of an order, in a word and in a text."""

    came: Came
    text: str
    master: str = ""
    """The node that has become master by it."""

    @property
    def exit_status(self) -> int:
        """Return 0 if it is done, 2 if nobody could be asked, 1 for the rest."""
        if self.came is Came.DONE:
            return 0
        return 2 if self.came in _COULD_NOT_ASK else 1


async def promote(
    group: FencedGroup, node: str, *, accept_loss: bool, wait_seconds: float
) -> Outcome:
    """Make `node` the master, by way of the present one."""
    view = await group.view()
    if view.master == node:
        return Outcome(Came.DONE, f"{node} is master of {group.name} already, epoch {view.epoch}")
    command = FencedCommand(command="promote", node=node, accept_loss=accept_loss)
    return await _tell_the_master(group, view, command, wait_seconds)


async def resign(group: FencedGroup, *, accept_loss: bool, wait_seconds: float) -> Outcome:
    """Let the present master step back for another."""
    view = await group.view()
    command = FencedCommand(command="resign", accept_loss=accept_loss)
    return await _tell_the_master(group, view, command, wait_seconds)


async def rejoin(group: FencedGroup, node: str, *, accept_loss: bool) -> Outcome:
    """Let a node set its store aside and copy the log of the present master."""
    command = FencedCommand(command="rejoin", node=node, accept_loss=accept_loss)
    result = await _give(group, node, command)
    if isinstance(result, Outcome):
        return result
    return _result(result, accept_loss=accept_loss)


async def scrub(group: FencedGroup, node: str) -> Outcome:
    """Have a node look at its log."""
    result = await _give(group, node, FencedCommand(command="scrub", node=node))
    if isinstance(result, Outcome):
        return result
    return _result(result, accept_loss=False)


async def raise_features(group: FencedGroup, level: int) -> Outcome:
    """Have the group go to a feature level; 0 is the highest that a member knows."""
    view = await group.view()
    if not view.master:
        return _no_master(group, view)
    node = next(each for each in view.nodes if each.node == view.master)
    if node.level_max <= LEVEL_MIN and not node.program:
        text = f"refused: {node.node} runs a version from before feature levels: upgrade it first"
        return Outcome(Came.REFUSED, text)
    command = FencedCommand(command="raise-features", level=level)
    result = await _give(group, view.master, command)
    if isinstance(result, Outcome):
        return result
    return _result(result, accept_loss=False)


async def recover_group(
    group: FencedGroup, *, min_isr: int, accept_loss: bool, wait_seconds: float
) -> Outcome:
    """Let a group go on that cannot elect a master any more, with the best log there is."""
    records = await group.records()
    if isinstance(records, str) or isinstance(group.coordinator, str):
        return Outcome(Came.NOT_ASKED, f"the coordinator cannot be asked: {records}")
    stale = await _why_not_as_recorded(group, records, accept_loss=accept_loss)
    if stale is not None:
        return stale
    known = Group(
        name=group.name,
        state=records.state,
        leader=records.leader,
        nodes=records.nodes,
        lives=records.lives,
        members=[member.name for member in group.members],
    )
    plan = plan_recovery(known, min_isr=min_isr, accept_loss=accept_loss)
    loss = await _what_is_lost(group, plan)
    if plan.state is None:
        text = f"refused: {plan.text}{f'. It would lose {loss}' if loss else ''}"
        return Outcome(Came.REFUSED, text)
    failure = await _write(group.coordinator, group.keys, plan.state, _compares(group, records))
    if failure is not None:
        return failure
    old_epoch = plan.state.epoch
    outcome = await _wait_for_master(group, lambda view: view.epoch > old_epoch, wait_seconds)
    words = f"{plan.text}{f' (lost: {loss})' if loss else ''}"
    return _after(words, outcome)


async def _write(
    coordinator: RecordStore, keys: GroupKeys, state: GroupState, compares: list[Compare]
) -> Outcome | None:
    """Write the record unless something has changed; return why that failed."""
    try:
        result = await coordinator.transact(compares, [Put(keys.state, encode_record(state))])
    except CoordinatorUnavailableError as error:
        text = f"{error}; it may have been written: see `tandem ha status`"
        return Outcome(Came.IN_DOUBT, text)
    except CoordinatorError as error:
        return Outcome(Came.NOT_ASKED, f"the coordinator refused, nothing was written: {error}")
    if not result.succeeded:
        text = "refused: a node came, went or wrote while this was decided; try again"
        return Outcome(Came.OVERTAKEN, text)
    return None


async def _why_not_as_recorded(
    group: FencedGroup, records: GroupRecords, *, accept_loss: bool
) -> Outcome | None:
    """Return which registered node says something else than its record, None for none.

    A coordinator that was restored has the records of nodes from then, with leases that run once
    more: what they say of the ends of logs must not decide anything.
    """
    said: dict[str, FencedStatus | str] = {}

    async def ask(member: Member) -> None:
        said[member.name] = await group.status(member)

    async with trio.open_nursery() as nursery:
        for member in group.members:
            if member.name in records.nodes and records.leader is None:
                nursery.start_soon(ask, member)
    for name, status in sorted(said.items()):
        record = records.nodes[name]
        if isinstance(status, str):
            if not accept_loss:
                text = f"refused: {name} is registered, but {status}; nothing was written"
                return Outcome(Came.SILENT_NODE, text)
            continue
        recorded = (record.incarnation, record.end, record.promised)
        if recorded != (status.incarnation, status.log_end, status.promised):
            text = (
                f"refused: the coordinator has a log of {record.end} bytes for {name}, which says"
                f" that it has {status.log_end}: its record is an older one, so ask again in some"
                " seconds; nothing was written"
            )
            return Outcome(Came.OLD_RECORD, text)
    return None


async def _what_is_lost(group: FencedGroup, plan: Recovery) -> str:
    """Ask the nodes that have them how many messages are lost, in words; empty for none."""
    parts = []
    for part in plan.lost:
        size = f"{part.end - part.start:,} bytes that {part.node} has confirmed"
        order = FencedCommand(command="count", start=part.start, end=part.end)
        result = await _give(group, part.node, order)
        if isinstance(result, FencedCommandResult) and result.done:
            size = f"{result.lost_messages:,} messages, {size}"
        parts.append(size)
    return "; ".join(parts)


def _compares(group: FencedGroup, records: GroupRecords) -> list[Compare]:
    """Everything that was read is as it was, nobody else came, and there still is no master."""
    keys = group.keys
    names = {*records.nodes, *(member.name for member in group.members)}
    decided_by = {keys.state, keys.leader, *map(keys.node, names)}
    return [Compare(key, records.revisions.get(key, 0)) for key in sorted(decided_by)]


async def _tell_the_master(
    group: FencedGroup, view: GroupView, command: FencedCommand, wait_seconds: float
) -> Outcome:
    if not view.master:
        return _no_master(group, view)
    result = await _give(group, view.master, command)
    if isinstance(result, Outcome):
        return result
    ordered = _result(result, accept_loss=command.accept_loss)
    if not result.done:
        return ordered
    outcome = await _wait_for_master(group, lambda now: now.epoch > view.epoch, wait_seconds)
    if outcome.master and command.node and outcome.master != command.node:
        text = f"{ordered.text}; but {outcome.text}"
        return Outcome(Came.OTHER_MASTER, text, outcome.master)
    return _after(ordered.text, outcome)


def _no_master(group: FencedGroup, view: GroupView) -> Outcome:
    silent = all(node.role == "down" for node in view.nodes)
    text = f"{group.name} has no master that could do it: {'; '.join(view.reasons)}"
    return Outcome(Came.NOT_ASKED if silent else Came.NO_MASTER, text)


def _after(words: str, outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, text=f"{words}; {outcome.text}")


async def _give(
    group: FencedGroup, node: str, command: FencedCommand
) -> FencedCommandResult | Outcome:
    try:
        return await group.admin.fenced_command(group.address(node), command)
    except BrokerError as error:
        if error.code == ResponseCode.NO_PERMISSION:
            return Outcome(Came.REFUSED, f"{node} refuses: {error.remark}")
        return Outcome(Came.NOT_ASKED, f"{node} could not be asked: {error}")
    except ClientError as error:
        text = f"{node} could not be reached: {error}"
        if not error.outcome_unknown:
            return Outcome(Came.NOT_ASKED, text)
        return Outcome(Came.IN_DOUBT, f"{text}; see `tandem ha status` for what came of it")


def _result(result: FencedCommandResult, *, accept_loss: bool) -> Outcome:
    came = Came.DONE if result.done else Came.REFUSED
    return Outcome(came, _in_words(result, accept_loss=accept_loss))


def _in_words(result: FencedCommandResult, *, accept_loss: bool) -> str:
    loss = f"{result.lost_messages:,} messages ({result.lost_bytes:,} bytes of log)"
    has_loss = result.lost_messages > 0 or result.lost_bytes > 0
    if result.done:
        return f"{result.text} (lost: {loss})" if has_loss else result.text
    words = f"refused: {result.text}"
    if has_loss and not accept_loss and "--accept-loss" not in result.text:
        words += f". It would lose {loss}; --accept-loss does it all the same"
    return words


async def _wait_for_master(
    group: FencedGroup, is_new: Callable[[GroupView], bool], wait_seconds: float
) -> Outcome:
    """Wait until a new master is open."""
    start = trio.current_time()
    view = await group.view()
    while not (view.master and is_new(view)):
        if trio.current_time() - start > wait_seconds:
            reasons = "; ".join(view.reasons) or "the old one is still there"
            text = f"there is no new master after {wait_seconds:g} s: {reasons}"
            return Outcome(Came.NO_NEW_MASTER, text)
        await trio.sleep(POLL_SECONDS)
        view = await group.view()
    seconds = trio.current_time() - start
    text = f"{view.master} is master of {group.name}, epoch {view.epoch}, after {seconds:.1f} s"
    return Outcome(Came.DONE, text, view.master)
