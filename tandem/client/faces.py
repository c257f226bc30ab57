"""Operations of a client, declared once, and its two faces: one awaits, one blocks.

    class AdminOperations:
        topics = operation(TopicAdministration.names)      a flow, under the name that users call

    class Admin(AsyncFace, AdminOperations): ...           await admin.topics()
    class BlockingAdmin(BlockingFace, AdminOperations): ...       admin.topics()

A face has a shell and the objects that flows are methods of. Its methods are made when its class
is: plain functions, with the flow's signature and docstring, so that `help` and an editor show what
they show of any method.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, overload

from tandem.client.async_shell import AsyncShell
from tandem.client.blocking_shell import BlockingShell
from tandem.client.flow import Flow

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """One operation. The class of a face has a method in its place."""

    def __init__(self, flow: Callable[..., Flow[T]]) -> None:
        self._flow = flow
        self.owner = flow.__qualname__.rpartition(".")[0]

    @overload
    def __get__(self, face: "AsyncFace", owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, face: "BlockingFace", owner: object) -> Callable[P, T]: ...

    @overload
    def __get__(self, face: None, owner: object) -> Self: ...

    def __get__(self, face: object, owner: object) -> object:
        return self

    def awaited(self, name: str) -> Callable[..., Coroutine[Any, Any, T]]:
        """Return the method of an `AsyncFace`."""
        flow, owner = self._flow, self.owner

        @wraps(flow)
        async def method(self: AsyncFace, *args: Any, **kwargs: Any) -> T:  # noqa: ANN401
            return await self._shell.run(flow(self._rules[owner], *args, **kwargs))

        self._name(method, name)
        return method

    def blocking(self, name: str) -> Callable[..., T]:
        """Return the method of a `BlockingFace`."""
        flow, owner = self._flow, self.owner

        @wraps(flow)
        def method(self: BlockingFace, *args: Any, **kwargs: Any) -> T:  # noqa: ANN401
            return self._shell.run(flow(self._rules[owner], *args, **kwargs))

        self._name(method, name)
        return method

    def _name(self, method: Callable[..., object], name: str) -> None:
        """Give a method its name, and a signature that returns what the flow ends with."""
        signature = inspect.signature(self._flow)
        result = get_args(signature.return_annotation)[-1]
        method.__name__ = name
        vars(method)["__signature__"] = signature.replace(return_annotation=result)


def operation(flow: Callable[Concatenate[Any, P], Flow[T]]) -> Operation[P, T]:
    """Declare a method of both faces. Its flow is a method of one of the face's rules."""
    return Operation(flow)


def operations_of(face: type) -> Iterator[tuple[str, Operation[..., Any]]]:
    """Yield the operations that a class has, by name, where it has no method of its own.

    So a class that inherits from a client can do one of them in another way.
    """
    for name in dir(face):
        value = inspect.getattr_static(face, name)
        if isinstance(value, Operation):
            yield name, value


class _Face:
    """What both have: `rules` are the objects that flows are methods of."""

    def __init__(self, *rules: object) -> None:
        self._rules = {type(each).__name__: each for each in rules}


class AsyncFace(_Face):
    """A client for trio and asyncio; an async context manager."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, each in operations_of(cls):
            setattr(cls, name, each.awaited(name))

    def __init__(self, shell: AsyncShell, *rules: object) -> None:
        super().__init__(*rules)
        self._shell = shell

    async def __aenter__(self) -> Self:
        await self._shell.open()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self._shell.close(politely=error_type is None)


class BlockingFace(_Face):
    """A client for plain code; a context manager, for one thread."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, each in operations_of(cls):
            setattr(cls, name, each.blocking(name))

    def __init__(self, shell: BlockingShell, *rules: object) -> None:
        super().__init__(*rules)
        self._shell = shell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()
