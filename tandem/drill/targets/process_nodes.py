"""The nodes of a deployed cluster, to be hurt by the commands of a file, and put in order again.

A command that fails says nothing about the cluster, so that it ends the drill
(`TargetCommandError`). Two may fail because of the node, and are noted as such: `start` and `stop`.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import trio

from tandem.client import ClientError
from tandem.drill.errors import TargetError
from tandem.drill.scenario import LOOK_SECONDS, NodeFailedError, NotPossibleError, OutOfPlaceError
from tandem.drill.targets.node_commands import NodeCommands, TargetCommandError
from tandem.drill.versions import NO_OTHER_VERSION
from tandem.drill.watched_group import WatchedGroup
from tandem.wire.ha_status import FencedCommand, FencedCommandResult

FIND_SECONDS: Final = 2.0
"""How often it is looked whether a node still has a process."""

GONE_SECONDS_MAX: Final = 60.0
RESTORE_SECONDS_MAX: Final = 120.0

REFUSED_SECONDS_MAX: Final = 5.0
"""A node that has just started may not know its users yet."""

STILL_LOOKS_MAX: Final = 100
"""How often a frozen node may answer still. Not seconds: the drill may stand still itself."""

AT_ONCE_SECONDS: Final = 0.3
"""A freeze lasts that much longer: who has no answer by then is taken to stand still."""

Answers = Callable[[str], Awaitable[bool]]
"""Whether a node answers now. Raises RefusedError."""


class RefusedError(Exception):
    """A node answers that it does not answer the drill; the text says why, and what to do.

    `is_lasting`: it will say so again, because of who asks.
    """

    def __init__(self, text: str, *, is_lasting: bool) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


class Orders(Protocol):
    """Tells a node of a fenced group what an operator wants."""

    async def fenced_command(self, address: str, command: FencedCommand) -> FencedCommandResult:
        """Send it; raises ClientError."""
        ...


class ProcessNodes:
    """What is done to nodes, and what has to be undone at the end."""

    def __init__(
        self,
        commands: Mapping[str, NodeCommands],
        *,
        answers: Answers,
        watched: WatchedGroup | None,
        orders: Orders | None,
        now: Callable[[], float],
    ) -> None:
        self._commands = commands
        self._answers = answers
        self._watched = watched
        self._orders = orders
        self._now = now
        self._should_run: dict[str, bool] = {}
        self._changes: dict[str, int] = dict.fromkeys(commands, 0)
        self._frozen: set[str] = set()
        self._ran_before: dict[str, bool] = {}
        self._exits: dict[str, str] = {}
        self._refusals: dict[str, str] = {}
        """What nodes said last that answer, and not what they are asked."""

    async def begin(self, seconds_max: float) -> None:
        """Start the nodes that do not run; return when all answer.

        Raises:
            TargetError: a command fails, or a node does not answer in time, or refuses us.
        """
        for node, commands in self._commands.items():
            self._ran_before[node] = bool(await commands.find())
            if not self._ran_before[node]:
                if not commands.has("start"):
                    raise TargetError(
                        f"{node} does not run, as `find` says, and it has no command `start`; start"
                        " it, or add that"
                    )
                await commands.run("start")
            self._should_run[node] = True
        for node, commands in self._commands.items():
            self._refusals.pop(node, None)
            with trio.move_on_after(seconds_max):
                await self._until_it_answers(node, REFUSED_SECONDS_MAX)
                continue
            if node in self._refusals:
                raise TargetError(f"{self._refusals[node]}; so it said for {seconds_max:g} s")
            address = commands.node.client_address
            raise TargetError(
                f"{node} does not answer at {address} within {seconds_max:g} s: nobody listens"
                " there, or not a broker; correct `address` and `port`, or start it"
            )

    async def start(self, node: str) -> None:
        """Start a node, unless something else has; returns once it answers."""
        commands = self._commands[node]
        self._changes[node] += 1
        if not await commands.find():
            try:
                await commands.run("start")
            except TargetCommandError as error:
                raise NodeFailedError(str(error)) from error
        await self._until_it_answers(node)
        self._should_run[node] = True
        self._exits.pop(node, None)

    async def stop(self, node: str) -> None:
        """Stop a node in an orderly way; returns when it is gone."""
        pid = await self._going(node)
        try:
            await self._commands[node].run("stop", {"PID": str(pid)})
        except TargetCommandError as error:
            raise NodeFailedError(str(error)) from error
        await self._until_gone(node, pid, "stop")

    async def kill(self, node: str) -> None:
        """End the process of a node at once; returns when it is gone."""
        pid = await self._going(node)
        await self._commands[node].run("kill", {"PID": str(pid)})
        await self._until_gone(node, pid, "kill")

    async def freeze(self, node: str) -> None:
        """Let the process of a node stand still; returns when it answers no more.

        Raises:
            TargetError: it goes on answering: the command did nothing, and nothing would be shown.
        """
        pid = await self._pid(node)
        self._frozen.add(node)
        await self._commands[node].run("freeze", {"PID": str(pid)})
        await self._until_it_stands_still(node)

    async def wake(self, node: str) -> None:
        """Let a frozen process go on."""
        pid = await self._pid(node)
        await self._commands[node].run("resume", {"PID": str(pid)})
        self._frozen.discard(node)

    async def resign(self, node: str) -> None:
        """Ask a master to give up."""
        await self._order(node, FencedCommand(command="resign"))

    async def promote(self, node: str) -> None:
        """Ask the master of now to hand over to this node."""
        master = self._watched.master if self._watched is not None else ""
        if not master:
            raise NodeFailedError("there is no master to ask")
        await self._order(master, FencedCommand(command="promote", node=node))

    async def by_hand(self, *order: str) -> str:
        """Say that it cannot be done: there is no cluster file here."""
        raise NotPossibleError("`tandem ha` needs a cluster file, and the target is not one")

    def upgrade(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError(NO_OTHER_VERSION)

    def go_back(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError(NO_OTHER_VERSION)

    def runs(self, node: str) -> bool:
        """Whether a node has a process, as far as is known."""
        return self._should_run.get(node, False) and node not in self._exits

    def unexpected_exits(self) -> list[str]:
        """Nodes that ended although nobody stopped them."""
        return list(self._exits.values())

    async def watch(self, node: str) -> None:
        """Look again and again whether a node that should run does, until cancelled.

        A process of another id ended by itself as well: something has started the node again.
        """
        before, changes_before = 0, -1
        while True:
            await trio.sleep(FIND_SECONDS)
            if not self._should_run[node]:
                continue
            changes = self._changes[node]
            try:
                pid = await self._commands[node].find()
            except TargetCommandError:
                continue  # nothing is known; the node's log of commands has it
            if changes != self._changes[node] or not self._should_run[node]:
                continue
            if not pid:
                self._exits[node] = f"{node} ended by itself: `find` finds no process"
            elif before not in (0, pid) and changes == changes_before:
                self._exits[node] = f"{node} ended by itself: its process {before} is {pid} now"
            before, changes_before = pid, changes

    async def let_run(self) -> list[str]:
        """Let everything run that ran before; return what could not be done."""
        left: list[str] = []
        for node in sorted(self._frozen):
            await self._put_back(node, "resume", left)
        for node, ran in self._ran_before.items():
            if ran and not await self._put_back(node, "", left):
                await self._put_back(node, "start", left)
        return left

    async def stop_started(self) -> list[str]:
        """Stop what did not run before; return once it is gone, and what could not be done.

        A command that asks for an end need not wait for it. All are asked before one is waited for.
        """
        left: list[str] = []
        stopping: dict[str, int] = {}
        for node, ran in self._ran_before.items():
            if not ran and await self._put_back(node, "", left):
                pid = await self._put_back(node, "stop", left)
                if pid and self._commands[node].has("stop"):
                    stopping[node] = pid
        for node, pid in stopping.items():
            try:
                await self._until_no_process(node, pid, "stop")
            except TargetError as error:
                left.append(f"not put back: {error}")
        return left

    async def _put_back(self, node: str, name: str, left: list[str]) -> int:
        """Run a command if the node has it; return its process before that, 0 if none or failed."""
        commands = self._commands[node]
        try:
            pid = await commands.find()
            if commands.has(name):
                await commands.run(name, {"PID": str(pid)})
        except TargetCommandError as error:
            left.append(f"not put back: {error}")
            return 0
        return pid

    async def _pid(self, node: str) -> int:
        pid = await self._commands[node].find()
        if not pid:
            raise OutOfPlaceError(f"{node} does not run: `find` finds no process")
        return pid

    async def _going(self, node: str) -> int:
        """The process id of a node that is about to be ended."""
        pid = await self._pid(node)
        self._changes[node] += 1
        self._should_run[node] = False
        return pid

    async def _until_gone(self, node: str, pid: int, name: str) -> None:
        await self._until_no_process(node, pid, name)
        self._frozen.discard(node)
        if self._watched is not None:
            self._watched.node_ended(self._now(), node)

    async def _until_no_process(self, node: str, pid: int, name: str) -> None:
        with trio.move_on_after(GONE_SECONDS_MAX):
            while await self._commands[node].find() == pid:  # noqa: ASYNC110 - another process
                await trio.sleep(LOOK_SECONDS)
            return
        command = getattr(self._commands[node].node.commands, name)
        raise TargetError(
            f"{node} still has its process {pid}, {GONE_SECONDS_MAX:g} s after `{name}`: {command}"
        )

    async def _until_it_answers(self, node: str, refused_seconds_max: float = math.inf) -> None:
        refused_at: float | None = None
        while True:
            now = trio.current_time()
            try:
                if await self._answers(node):
                    return
                refused_at = None
                self._refusals.pop(node, None)
            except RefusedError as error:
                self._refusals[node] = str(error)
                refused_at = now if refused_at is None or not error.is_lasting else refused_at
                if now - refused_at >= refused_seconds_max:
                    raise TargetError(str(error)) from error
            await trio.sleep(LOOK_SECONDS)

    async def _until_it_stands_still(self, node: str) -> None:
        """Return when a node does not answer at once what it is asked from now on."""
        for _ in range(STILL_LOOKS_MAX):
            if not await self._answers_at_once(node):
                return
            await trio.sleep(LOOK_SECONDS)
        freeze = self._commands[node].node.commands.freeze
        raise TargetError(f"{node} goes on answering after `freeze`: {freeze}; correct it")

    async def _answers_at_once(self, node: str) -> bool:
        with trio.move_on_after(AT_ONCE_SECONDS):
            try:
                return await self._answers(node)
            except RefusedError:
                return True
        return False

    async def _order(self, node: str, command: FencedCommand) -> None:
        if self._orders is None:
            raise NotPossibleError("orders need `secret_file`, of a fenced group")
        address = self._commands[node].node.client_address
        try:
            result = await self._orders.fenced_command(address, command)
        except ClientError as error:
            raise NodeFailedError(f"{node} did not answer {command.command}: {error}") from error
        if not result.done:
            raise NodeFailedError(f"{node} refused to {command.command}: {result.text}")


class ProcessNetwork:
    """Nodes that are cut off from all others by their command `cut`, until `heal`."""

    def __init__(self, commands: Mapping[str, NodeCommands]) -> None:
        self._commands = commands
        self._cut: set[str] = set()

    async def cut_off(self, node: str, others: Sequence[str]) -> None:
        """Cut a node off from all others."""
        if node not in self._commands:
            raise NotPossibleError(f"the file has no command that cuts {node} off")
        self._cut.add(node)
        await self._commands[node].run("cut")

    async def heal(self) -> None:
        """Heal what was cut."""
        failed: list[TargetCommandError] = []
        for node in sorted(self._cut):
            try:
                await self._commands[node].run("heal")
            except TargetCommandError as error:
                failed.append(error)  # the others are healed all the same
            else:
                self._cut.discard(node)
        if failed:
            raise TargetCommandError(
                "; ".join(map(str, failed)), failed[0].node, "heal", failed[0].status
            )

    def cut(self, source: str, target: str, *, replication_only: bool = False) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError("commands cut a node off from everything, and no single link")

    def slow(
        self, source: str, target: str, *, delay_seconds: float = 0, bytes_per_second: float = 0
    ) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError("the file has no command that slows a link down")

    def reset(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError("the file has no command that breaks connections")

    async def disturb(self, node: str) -> str:
        """Say that it cannot be done."""
        raise NotPossibleError("strangers disturb nodes of our own target alone")
