"""One way to write a test of the clients, and three to run it: under trio, asyncio, in threads."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

import tandem

WORLDS = ("trio", "asyncio", "threads")

in_three_worlds = pytest.mark.parametrize("world", WORLDS)


class _Driven:
    """An asynchronous object whose methods are called from plain code."""

    def __init__(self, driven: object, portal: BlockingPortal) -> None:
        self._driven = driven
        self._portal = portal

    def run(self, use: Callable[[Any], Awaitable[None]]) -> None:
        """Let `use` have the object itself, in its event loop."""
        self._portal.call(use, self._driven)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever it has
        async def get() -> Any:  # noqa: ANN401
            return getattr(self._driven, name)

        value = self._portal.call(get)
        return self._call(value) if callable(value) else value

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> object:
            async def run() -> object:
                result = method(*arguments, **named)
                return await result if hasattr(result, "__await__") else result

            result = self._portal.call(run)
            is_message = isinstance(result, (tandem.ReceivedMessage, tandem.Subscription))
            return _Driven(result, self._portal) if is_message else result

        return call

    def __iter__(self) -> Iterator[Any]:
        async def begin() -> Any:  # noqa: ANN401
            return aiter(cast("Any", self._driven))

        messages = self._portal.call(begin)

        async def next_one() -> object:
            return await anext(messages, None)

        while (message := self._portal.call(next_one)) is not None:
            yield _Driven(message, self._portal)


class Clients:
    """Makes clients of one world. They have the methods of the blocking ones."""

    def __init__(self, world: str, stack: ExitStack) -> None:
        self.world = world
        self._portal = None if world == "threads" else stack.enter_context(_portal(world))

    def producer(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Open a `Producer` or a `BlockingProducer`."""
        return self._open(tandem.Producer, tandem.BlockingProducer, arguments, named)

    def consumer(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Open a `Consumer` or a `BlockingConsumer`."""
        return self._open(tandem.Consumer, tandem.BlockingConsumer, arguments, named)

    @contextmanager
    def _open(
        self,
        asynchronous: Callable[..., Any],
        plain: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Iterator[Any]:
        if self._portal is None:
            with plain(*arguments, **named) as client:
                yield client
            return
        opened = self._portal.wrap_async_context_manager(asynchronous(*arguments, **named))
        with opened as client:
            yield _Driven(client, self._portal)


def _portal(loop: str) -> AbstractContextManager[BlockingPortal]:
    return start_blocking_portal(backend=loop)


@contextmanager
def clients_of(world: str) -> Iterator[Clients]:
    """Have clients of one of the `WORLDS`."""
    with ExitStack() as stack:
        yield Clients(world, stack)
