"""What can go wrong with the cluster of a test."""

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from tandem.cluster_file.errors import ClusterError

T = TypeVar("T")

_SHOWN_MAX: Final = 5
"""Of what a promise was broken for."""


class NoAddressesError(ClusterError):
    """No addresses are free for one more cluster."""


class FaultNeed(enum.Enum):
    """What a fault needs and does not have."""

    OTHER_NODE = enum.auto()
    """A link is between two nodes."""
    PROXIES = enum.auto()
    DISKS = enum.auto()


class FaultNotPossibleError(ClusterError):
    """The cluster was started without what this fault needs; the text says how to start it.

    `need` is what that is.
    """

    def __init__(self, text: str, need: FaultNeed) -> None:
        super().__init__(text, need)
        self.need = need

    def __str__(self) -> str:
        return str(self.args[0])


class BrokenPromiseError(AssertionError):
    """A promise was broken: what the checkers of `Effects` raise."""


class HandledTwiceError(BrokenPromiseError):
    """Effects were handled more than once; `times` says how often each."""

    def __init__(self, times: Mapping[Hashable, int]) -> None:
        shown = ", ".join(f"{effect!r} {count} times" for effect, count in _first(times.items()))
        super().__init__(
            f"handled more than once: {shown}; a handler has to look first whether the effect of a"
            " message is there"
        )
        self.times = dict(times)


class LostError(BrokenPromiseError):
    """`effects` were answered with SEND_OK, and nobody handled them."""

    def __init__(self, effects: Sequence[Hashable]) -> None:
        shown = ", ".join(repr(effect) for effect in _first(effects))
        super().__init__(
            f"sent and never handled: {shown} ({len(effects)} in all); a message counts as handled"
            " only when its work is done"
        )
        self.effects = list(effects)


class OrderError(BrokenPromiseError):
    """Of `sharding_key`, `effect` was handled after `before`, which was sent later."""

    def __init__(self, sharding_key: Hashable, before: Hashable, effect: Hashable) -> None:
        super().__init__(
            f"sharding key {sharding_key!r}: {effect!r} was handled after {before!r}, which was"
            " sent later; send them with this key, one by one, and consume with orderly=True"
        )
        self.sharding_key = sharding_key
        self.before = before
        self.effect = effect


class UnknownEffectError(ValueError):
    """`effect` was sent, and `sending` was not called before."""

    def __init__(self, effect: Hashable) -> None:
        super().__init__(f"effect {effect!r}: call sending() before its send")
        self.effect = effect


class RealThing(enum.Enum):
    """What a simulated run has no place for."""

    ASYNCIO = "asyncio"
    PROCESS = "a process"
    SLEEP = "time.sleep"
    SOCKET = "a socket"
    THREAD = "a thread"


_IN_PLACE_OF: Final = {
    RealThing.ASYNCIO: "run the code under trio, or test it with a real cluster",
    RealThing.PROCESS: "give its work to a function of the test, or test it with a real cluster",
    RealThing.SLEEP: "await trio.sleep() instead",
    RealThing.SOCKET: "put what it reaches (a database, an HTTP API) into the test as an object",
    RealThing.THREAD: "call the function itself, or test it with a real cluster",
}


class NotSimulatedError(Exception):
    """The code under test uses something real in a simulated run; `thing` says what."""

    def __init__(self, thing: RealThing) -> None:
        super().__init__(
            f"{thing.value} is real, and this run is simulated: no time passes in it, and no seed"
            f" decides what the world outside does; {_IN_PLACE_OF[thing]}"
        )
        self.thing = thing


class SimulatedTimeError(BrokenPromiseError):
    """A simulated run has not ended after `seconds` of its own time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the test has not ended after {seconds:g} s of simulated time; what it waits for never"
            " comes, or give a larger seconds_max"
        )
        self.seconds = seconds


class NotInSyncError(BrokenPromiseError):
    """A simulated group has not recovered, though every fault has ended."""

    def __init__(self) -> None:
        super().__init__(
            "the group has not recovered, though every fault has ended: this is a fault of"
            " TandemMQ; report it with the seed"
        )


class SeedsError(ClusterError):
    """TANDEM_SEEDS is `text`, which says no seeds."""

    def __init__(self, text: str) -> None:
        super().__init__(f"TANDEM_SEEDS is {text!r}; write a seed, 417, or a range, 0-999")
        self.text = text


def _first(several: Iterable[T]) -> list[T]:
    return list(islice(several, _SHOWN_MAX))
