"""What an operator may order: promote, resign, rejoin. Each refuses what would lose messages.

    promote X    to the master. X is caught up: no more puts, X gets the rest, X is preferred and
                 the leader record goes away, in one transaction. X is not: refused, with numbers
    resign       to the master. Any other member may win
    rejoin       to the node itself. Its store is set aside; it copies the log under a new name

    raise-features   to the master. The group goes to a level that all members know, who are there

    count        to any node: how many messages are in a part of its log
    scrub        to any node: it looks whether its log is as it was written

Before anything is given up it is compared with what anybody has confirmed, as far as the
coordinator and the last comparison with the master's log tell. With `accept_loss`, promote makes
X the only member of the in-sync set, and rejoin gives up a copy that may be the only one.

Nothing is taken back halfway: until the transaction is known to have succeeded, this node is
master and takes puts again. With `accept_loss` it steps down if that is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from ha.fenced.election import farewell
from ha.fenced.group_view import GroupView
from ha.fenced.leadership import Leadership
from ha.fenced.level_raising import raise_level
from ha.fenced.master import FencedMaster
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from store.machine.errors import StoreError
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.group_state import GroupState, LeaderRecord, confirmed_elsewhere
from tandem.wire.ha_status import FencedCommand, FencedCommandResult

HAND_OVER_SECONDS: Final = 3.0
"""How long a master takes no puts while the other one gets the rest."""

COUNTED_BYTES_MAX: Final = 256 << 20
"""Messages in more than this are not counted: it would stop the node for too long."""


class FencedCommands:
    """Carries out the orders for one replica in one round."""

    def __init__(self, parts: ReplicaParts, leadership: Leadership, round_end: RoundEnd) -> None:
        self._config = parts.config
        self._store = parts.store
        self._session = parts.session
        self._replica = parts.replica
        self._standing = parts.standing
        self._leadership = leadership
        self._round_end = round_end
        self._is_busy = False

    async def carry_out(self, command: FencedCommand) -> FencedCommandResult:
        """Do it, or say why not."""
        if command.command in ("count", "scrub"):  # they change nothing, and hinder nothing
            return self._count_only(command) if command.command == "count" else self._scrub_now()
        if self._is_busy:
            return _refused("another order is being carried out; ask again when it is done")
        self._is_busy = True
        try:
            if command.command == "rejoin":
                return await self._rejoin(accept_loss=command.accept_loss)
            master = self._standing.mastership
            if master is None or not master.is_open or master.closed_because is not None:
                return _refused(f"{self._config.name} is not the master; ask `tandem ha status`")
            return await self._give_to(master, command)
        finally:
            self._is_busy = False

    async def _give_to(self, master: FencedMaster, command: FencedCommand) -> FencedCommandResult:
        if command.command == "resign":
            return await self._resign_now(master)
        if command.command == "raise-features":
            return await raise_level(self._config, self._session, master, command.level)
        return await self._promote(master, command.node, accept_loss=command.accept_loss)

    # -- promote ---------------------------------------------------------------------------------

    async def _promote(
        self, master: FencedMaster, name: str, *, accept_loss: bool
    ) -> FencedCommandResult:
        if name == self._config.name:
            return FencedCommandResult(done=True, text=f"{name} is the master already")
        if all(peer.name != name for peer in self._config.peers):
            return _refused(f"there is no node {name!r} in {self._config.group}")
        view = self._session.view
        node = view.nodes.get(name) if view else None
        if node is not None and node.damage:
            return _refused(
                f"{name} is damaged: {node.damage}. It heals by itself: wait until then"
            )
        why = f"an operator promotes {name}"
        try:
            if self._is_member(master, name) and await self._hand_over(master, name, why):
                state = msgspec.structs.replace(farewell(master.state, why), preferred=name)
                return await self._leave(master, state, why, self._leadership.step_down)
        finally:
            if master.closed_because is None:
                master.hold_back("")
        return await self._promote_anyway(master, name, accept_loss=accept_loss)

    def _is_member(self, master: FencedMaster, name: str) -> bool:
        replica = master.isr.replicas.get(name)
        return (
            replica is not None
            and replica.connected
            and master.isr.recorded.get(name) == replica.incarnation
        )

    async def _hand_over(self, master: FencedMaster, name: str, why: str) -> bool:
        """Take no more puts and let a member get the rest. True if it has everything."""
        master.hold_back(f"{why}: it takes no messages until that has happened")
        with trio.move_on_after(HAND_OVER_SECONDS):
            # Confirmed, so that waiting puts are answered before this node stops being master.
            end = self._store.max_physical_offset
            while min(master.isr.acked(name), master.isr.confirm) < end:
                await master.moved.wait()
        has_everything = master.isr.acked(name) >= self._store.max_physical_offset
        return has_everything and self._is_member(master, name)

    async def _promote_anyway(
        self, master: FencedMaster, name: str, *, accept_loss: bool
    ) -> FencedCommandResult:
        """Refuse with numbers, or lose what they say."""
        view = self._session.view
        node = view.nodes.get(name) if view else None
        if master.closed_because is not None:
            return _refused(f"{self._config.name} is no longer master: {master.closed_because}")
        if node is None or node.trouble:
            trouble = node.trouble if node else "is not registered: start it first"
            return _refused(f"{name} cannot become master: {trouble}")
        end = self._store.max_physical_offset
        reached = min(max(master.isr.acked(name), node.end), end)
        messages, lost_bytes = self._count(reached, end), end - reached
        lacks = f"{name} lacks {_in_words(messages, lost_bytes)} of this log"
        if not accept_loss:
            stands = self._how_it_stands(master, name)
            return FencedCommandResult(
                done=False,
                text=f"{lacks} and is {stands}: wait until it has caught up,"
                " or lose them with --accept-loss",
                lost_messages=messages,
                lost_bytes=lost_bytes,
            )
        why = f"an operator promotes {name}, accepting that {lacks}"
        state = msgspec.structs.replace(
            farewell(master.state, why),
            isr={name: node.incarnation},
            preferred=name,
            loss_accepted=master.epoch,
        )
        # What is put from here on would be lost, too, and is not in the count.
        master.hold_back(f"{why}: it takes no messages until that has happened")
        try:
            result = await self._leave(master, state, why, self._leadership.step_down)
        finally:
            if master.closed_because is None:
                master.hold_back("")
        return msgspec.structs.replace(result, lost_messages=messages, lost_bytes=lost_bytes)

    def _how_it_stands(self, master: FencedMaster, name: str) -> str:
        if name not in master.isr.recorded:
            return "not in the in-sync set"
        why = master.isr.why_not_live(name, trio.current_time())
        return f"a member of the in-sync set that {why or 'does not follow'}"

    def _count(self, start: int, end: int) -> int:
        if end - start > COUNTED_BYTES_MAX:
            return 0
        return self._store.count_records(start, end)

    def _count_only(self, command: FencedCommand) -> FencedCommandResult:
        low, high = self._store.min_physical_offset, self._store.max_physical_offset
        start, end = max(command.start, low), min(command.end, high)
        if not low <= start <= end or end - start > COUNTED_BYTES_MAX:
            return _refused(f"{start} to {end} is not counted: it is too much, or not in this log")
        return FencedCommandResult(
            done=True,
            text="counted",
            lost_messages=self._count(start, end),
            lost_bytes=end - start,
        )

    # -- scrub -----------------------------------------------------------------------------------

    def _scrub_now(self) -> FencedCommandResult:
        name = self._config.name
        self._store.scrub_service.scrub_now()
        text = f"{name} looks at its log; `tandem ha status` says how far it is"
        return FencedCommandResult(done=True, text=text)

    # -- resign ----------------------------------------------------------------------------------

    async def _resign_now(self, master: FencedMaster) -> FencedCommandResult:
        others = master.others_electable()
        if not others:
            return _refused(
                "no other member of the in-sync set is alive and able to become master:"
                f" {self._config.group} would have none"
            )
        why = "an operator asked it to resign"
        master.hold_back(f"{self._config.name} is about to resign: {why}")
        try:
            with trio.move_on_after(HAND_OVER_SECONDS):
                while master.isr.confirm < self._store.max_physical_offset:
                    await master.moved.wait()
            state = farewell(master.state, why)
            return await self._leave(master, state, why, self._leadership.resign)
        finally:
            if master.closed_because is None:
                master.hold_back("")

    async def _leave(
        self,
        master: FencedMaster,
        state: GroupState,
        why: str,
        give_up: Callable[[str], None],
    ) -> FencedCommandResult:
        """Delete the leader record and write `state`, as one; then step down."""
        state = msgspec.structs.replace(state, version=master.state.version + 1)
        if master.closed_because is not None:
            return _refused(f"{self._config.name} is no longer master: {master.closed_because}")
        if master.isr.outstanding:
            return _refused("a change of the in-sync set is under way; ask again")
        try:
            result = await self._session.replace_state(
                state,
                state_revision=master.isr.revision,
                leader_revision=master.leader_revision,
                gives_up=True,
            )
        except CoordinatorError as error:
            if state.isr != master.state.isr:
                # The node that it elects may lack what this node would acknowledge from now on.
                give_up(f"{why}, and it is not known whether that has happened")
            return _refused(f"the coordinator did not answer, it may still happen: {error}")
        if not result.succeeded:
            return _refused("the group's record has just changed; ask again")
        give_up(why)
        return FencedCommandResult(done=True, text=f"{self._config.name} gave up mastership: {why}")

    # -- rejoin ----------------------------------------------------------------------------------

    async def _rejoin(self, *, accept_loss: bool) -> FencedCommandResult:
        why_not = self._why_no_follower()
        if why_not is not None:
            return _refused(why_not)
        try:
            view = await self._session.refresh()
        except CoordinatorError as error:
            return _refused(
                f"nothing is known of the group, because the coordinator failed: {error}"
            )
        end = self._store.max_physical_offset
        risk, lost_from = self._risk_of_rejoin(view, end)
        lost_bytes = 0 if risk is None else end - lost_from
        messages = 0 if risk is None else self._count(lost_from, end)
        if risk is not None and not accept_loss:
            return FencedCommandResult(
                done=False,
                text=f"{risk}: up to {_in_words(messages, lost_bytes)} may exist nowhere else;"
                " give them up with --accept-loss",
                lost_messages=messages,
                lost_bytes=lost_bytes,
            )
        why_not = self._why_no_follower()
        if why_not is not None:
            return _refused(why_not)
        try:
            name = self._replica.want_set_aside("an operator asked for it")
        except StoreError as error:
            return _refused(f"the store cannot be set aside: {error}")
        self._round_end.begin_empty(f"the store is set aside as {name}: an operator asked for it")
        return FencedCommandResult(
            done=True,
            text=f"the store is set aside as {name}; {self._config.name} copies the log anew",
            lost_messages=messages,
            lost_bytes=lost_bytes,
        )

    def _why_no_follower(self) -> str | None:
        """Return why the store cannot be set aside now, in words; None if it can."""
        role = self._standing.role
        if role in (ReplicaRole.FOLLOWER, ReplicaRole.QUARANTINED):
            return None
        return f"{self._config.name} is {role}: have it resign first"

    def _risk_of_rejoin(self, view: GroupView, end: int) -> tuple[str | None, int]:
        """Return why this node's copy may be needed, None if it is not, and from where on."""
        low = self._store.min_physical_offset
        needed = self._why_needed(view)
        if view.leader is None:
            return needed or "there is no master to copy the log from", low
        equal_below = self._equal_below(view.leader)
        confirm, by = confirmed_elsewhere(view.state, view.nodes, view.lives, but="")
        if self._store.confirm_offset >= confirm:
            confirm, by = self._store.confirm_offset, self._config.name
        confirmed = min(end, confirm)
        if equal_below < confirmed:
            where = f"parts from this one at {equal_below}"
            if equal_below < 0:
                where = "has not been compared with this one yet"
            return (
                f"everything below {confirmed} was confirmed (by {by}), and"
                f" the log of {view.leader.node}, the master, {where}; if that is an older copy,"
                " stop it and run `tandem ha recover-group`"
            ), max(low, equal_below)
        return needed, max(low, min(end, self._known_elsewhere(view)))

    def _equal_below(self, leader: LeaderRecord) -> int:
        """Return up to where the master is known to have this log; -1 if they were not compared."""
        follower, parting = self._standing.follower, self._standing.parting
        if follower is not None and follower.epoch == leader.epoch:
            return self._store.max_physical_offset if follower.link_up else follower.equal_below
        return parting.offset if parting.epoch == leader.epoch else -1

    def _why_needed(self, view: GroupView) -> str | None:
        """Return why the group may need this copy to have enough of them, in words; None if not."""
        name, state = self._config.name, view.state
        if state is None:
            return (
                "the coordinator has no record of the group, so this log may be the best there is"
            )
        if state.isr.get(name) != self._replica.file.incarnation:
            return None
        others = [
            other
            for other, incarnation in sorted(state.isr.items())
            if other != name
            and other in view.nodes
            and view.nodes[other].incarnation == incarnation
        ]
        if len(others) >= max(1, state.min_isr):
            return None
        return (
            f"{name} is in the in-sync set and only {len(others)} other members live"
            f" ({', '.join(others) or 'none'}), of at least {state.min_isr}"
        )

    def _known_elsewhere(self, view: GroupView) -> int:
        """Return how far another member's log is known to reach."""
        isr = view.state.isr if view.state else {}
        ends = [
            node.end
            for name, node in view.nodes.items()
            if name != self._config.name and isr.get(name) == node.incarnation
        ]
        return max(ends, default=0)


def _in_words(messages: int, size_bytes: int) -> str:
    if size_bytes > COUNTED_BYTES_MAX:
        return f"{size_bytes:,} bytes of messages (too many to count)"
    return f"{messages:,} messages ({size_bytes:,} bytes)"


def _refused(text: str) -> FencedCommandResult:
    return FencedCommandResult(done=False, text=text)
