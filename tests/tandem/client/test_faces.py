"""Each operation is there in both faces, as any other method is."""

import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio

from tandem.client.admin import Admin, BlockingAdmin
from tandem.client.async_shell import AsyncShell
from tandem.client.blocking_producer import BlockingProducer
from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import ClusterAccess
from tandem.client.core import ClientCore
from tandem.client.event_loop import LoopClock
from tandem.client.faces import AsyncFace, BlockingFace, operation, operations_of
from tandem.client.flow import Flow, Pause
from tandem.client.producer import Producer
from tandem.client.pull_consumer import BlockingPullConsumer, PullConsumer
from tests.tandem.client.fake_broker import NAME_SERVER

PAIRS: Final[list[tuple[type[AsyncFace], type[BlockingFace]]]] = [
    (Admin, BlockingAdmin),
    (PullConsumer, BlockingPullConsumer),
    (Producer, BlockingProducer),
]


class Rules:
    def __init__(self, start: int) -> None:
        self._start = start

    def added(self, number: int, *, twice: bool = False) -> Flow[int]:
        """Return a sum."""
        yield Pause(0.0)
        return self._start + number * (1 + twice)


class Operations:
    total = operation(Rules.added)


class AsyncSum(AsyncFace, Operations): ...


class BlockingSum(BlockingFace, Operations): ...


def a_core(clock: Callable[[], float]) -> ClientCore:
    return ClusterAccess(NAME_SERVER).core(clock)


async def test_one_flow_is_awaited_and_blocks() -> None:
    async with AsyncSum(AsyncShell(a_core(LoopClock())), Rules(10)) as adder:
        assert await adder.total(1, twice=True) == 12
        assert await adder.total(1) == 11
    with BlockingSum(BlockingShell(a_core(trio.current_time)), Rules(20)) as adding:
        assert adding.total(1, twice=True) == 22
        with pytest.raises(TypeError):
            adding.total(1, thrice=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("face", [AsyncSum, BlockingSum])
def test_a_method_says_what_its_flow_says_and_returns_no_flow(face: type) -> None:
    method = vars(face)["total"]
    assert inspect.isfunction(method)
    assert (method.__name__, method.__doc__) == ("total", "Return a sum.")
    assert str(inspect.signature(method)) == "(self, number: int, *, twice: bool = False) -> int"
    assert inspect.iscoroutinefunction(method) == (face is AsyncSum)


async def test_who_inherits_from_a_client_may_do_an_operation_in_another_way() -> None:
    class Doubled(AsyncSum):
        async def total(self, number: int, *, twice: bool = False) -> int:
            return 2 * await super().total(number, twice=twice)

    class Plain(Doubled): ...

    for face in (Doubled, Plain):
        async with face(AsyncShell(a_core(LoopClock())), Rules(10)) as adder:
            assert await adder.total(1) == 22


def declared(face: type) -> set[str]:
    return {name for base in face.__mro__ for name, _ in operations_of(base)}


def public(face: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(face) if not name.startswith("_")}


@pytest.mark.parametrize(("awaits", "blocks"), PAIRS)
def test_the_faces_of_a_client_differ_in_nothing_else(
    awaits: type[AsyncFace], blocks: type[BlockingFace]
) -> None:
    both = declared(awaits)
    assert both == declared(blocks) - {"send"}  # a Producer's tasks share requests
    for name, blocking in public(blocks).items():
        awaiting = public(awaits)[name]
        own, other = inspect.signature(blocking), inspect.signature(awaiting)
        assert own.parameters == other.parameters, name
        if name in both:
            assert (own, blocking.__doc__) == (other, awaiting.__doc__)


@pytest.mark.parametrize("face", [each for pair in PAIRS for each in pair])
def test_each_operation_has_its_rules(face: Callable[..., AsyncFace | BlockingFace]) -> None:
    """A line whose flow is of an object that the face was not given fails when it is called."""
    client = face(NAME_SERVER) if face in (Admin, BlockingAdmin) else face(NAME_SERVER, "G")
    owners = {each.owner for base in type(client).__mro__ for _, each in operations_of(base)}
    assert owners <= client._rules.keys()
