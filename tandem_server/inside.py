"""Imports programs of a cluster into a process of somebody else, and takes no names of theirs.

    inside("node.simulated.play")       is `tandem_server.node.simulated.play`

`node`, `ha` and `store` import each other by these names, which may be a user's own in a process
that tests the user's code. So here they are parts of `tandem_server`: in their modules alone
`import node` means `tandem_server.node`. Everywhere else it means what it always has.
"""

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

from tandem_server.__main__ import _HERE, PROGRAMS, directory_of_programs

_PACKAGE: Final = __name__.rpartition(".")[0]
_OURS: Final = frozenset({*PROGRAMS, "ha"})


def inside(name: str) -> ModuleType:
    """Return a module of `node`, `ha` or `store`; it is imported at most once.

    Raises:
        ModuleNotFoundError: there is none of this name.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _import(
    name: str,
    globals_: Mapping[str, object] | None = None,
    locals_: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What `import` does in these modules."""
    head = name.partition(".")[0]
    if level or head not in _OURS:
        return builtins.__import__(name, globals_, locals_, fromlist or (), level)
    found = builtins.__import__(f"{_PACKAGE}.{name}", globals_, locals_, fromlist or (), 0)
    return found if fromlist else sys.modules[f"{_PACKAGE}.{head}"]


class _Loader(SourceFileLoader):
    """Gives a module its own `import` before its first line runs."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


class _Finder:
    """Finds the programs below `tandem_server`, wherever they are."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        del target
        package, _, inner = name.partition(".")
        if package != _PACKAGE or inner.partition(".")[0] not in _OURS:
            return None
        directories = list(path or ()) if "." in inner else [str(directory_of_programs(_HERE))]
        spec = PathFinder.find_spec(name, directories)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


_FINDER: Final[Any] = _Finder()
