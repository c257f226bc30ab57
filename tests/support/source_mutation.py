"""Mistakes made in the text of one function, for as long as a block lasts.

For what simulation cannot see: the system calls of the real disk. The function keeps its name and
its place, and everybody who has it runs the changed code.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, cast

import msgspec


class SourceMutation(msgspec.Struct, frozen=True):
    """In the source of `function`, `old`, which is there once, becomes `new`."""

    function: Callable[..., Any]
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code for as long as the context lasts.

        Raises:
            ValueError: `old` is not there once: the code has changed, and so must this.
        """
        function = cast("FunctionType", self.function)
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise ValueError(f"{function.__qualname__}: {self.old!r} is not there once")
        changed = source.replace(self.old, self.new)
        flags = __future__.annotations.compiler_flag
        code = compile(changed, inspect.getfile(function), "exec", flags, dont_inherit=True)
        names = dict(function.__globals__)
        exec(code, names)  # our own code, with a mistake in it
        real = function.__code__
        function.__code__ = names[function.__name__].__code__
        try:
            yield
        finally:
            function.__code__ = real
