"""Requests of POP that wait for a message: whose they are.

What they wait for is the business of `node.receive`. Here is what ends them before that: their
connection is gone, or who sent them may not read any more. No connection and no address has all
the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from node.errors import RequestError
from node.receive.requests import Waiting
from node.remoting.connection import Connection
from tandem.wire.access_control import Kind, Right

HELD_PER_ADDRESS_MAX: Final = 32_768
HELD_PER_CONNECTION_MAX: Final = 8_192
"""As of pulls: one client holds some for each topic, and a proxy those of some hundreds."""


class HeldPop:
    """One request.

    Attributes:
        owner: The connection it came by.
        caller: Who asked by that connection then.
        names: The topic and the group that it reads.
        refuse: Answers it with an error; called at most once, and nothing else answers it then.
        waiting: What waits; None as long as that is not known.
    """

    __slots__ = ("caller", "names", "owner", "refuse", "waiting")

    def __init__(
        self, owner: Connection, topic: str, group: str, refuse: Callable[[RequestError], None]
    ) -> None:
        self.owner = owner
        self.caller = owner.caller
        self.names = ((Kind.TOPIC, topic), (Kind.GROUP, group))
        self.refuse = refuse
        self.waiting: Waiting | None = None

    def check(self) -> RequestError | None:
        """Ask once more if it may be served; return why not."""
        try:
            for kind, name in self.names:
                self.caller.check(kind, name, Right.SUB)
        except RequestError as error:
            return error
        return None


class HeldPops:
    """Those of one broker."""

    def __init__(self) -> None:
        self._by_owner: dict[Connection, dict[HeldPop, None]] = {}
        self._by_address: Counter[str] = Counter()

    @property
    def held_count(self) -> int:
        """How many there are."""
        return self._by_address.total()

    def has_room(self, owner: Connection) -> bool:
        """Whether a connection may have one more request wait."""
        return (
            len(self._by_owner.get(owner, ())) < HELD_PER_CONNECTION_MAX
            and self._by_address[owner.peer.ip] < HELD_PER_ADDRESS_MAX
        )

    def hold(self, pop: HeldPop, waiting: Waiting) -> None:
        """Remember that a request waits."""
        pop.waiting = waiting
        self._by_owner.setdefault(pop.owner, {})[pop] = None
        self._by_address[pop.owner.peer.ip] += 1

    def answered(self, pop: HeldPop) -> None:
        """It waits no more; harmless if it never did."""
        if pop.waiting is None:
            return
        pop.waiting = None
        of_owner, address = self._by_owner[pop.owner], pop.owner.peer.ip
        del of_owner[pop]
        if not of_owner:
            del self._by_owner[pop.owner]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def connection_closed(self, connection: Connection) -> None:
        """Nobody would get the messages."""
        for pop in list(self._by_owner.get(connection, ())):
            self._cancel(pop)

    def ask_of_the_changed(self) -> None:
        """End the requests of those who may not read any more."""
        changed = [
            pop for pops in self._by_owner.values() for pop in pops if not pop.caller.is_current
        ]
        for pop in changed:
            error = pop.check()
            if error is not None:
                self._cancel(pop)
                pop.refuse(error)

    def _cancel(self, pop: HeldPop) -> None:
        if pop.waiting is not None:
            pop.waiting.cancel()
        self.answered(pop)
