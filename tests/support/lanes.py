"""Which worker of pytest-xdist runs which test: what waits for processes has workers of its own.

    worker      gw0   gw1   gw2   gw3     with two cores
    begins with units that compute        units that wait
    ends with   whatever is left

A unit is one test, or all tests of the modules that name one `xdist_group`. It waits if its module
speaks of the marks `fault` or `spark`: such tests start processes, and their own worker has little
to do. As many of those as there are cores run beside as many tests that keep a core busy.

The marks are looked for in the text of a module. What the workers have collected comes here as node
ids only, and with pytest 9.2 and pytest-xdist 3.8 those do not tell the group: `--dist loadgroup`
by itself puts no tests together and does not say so.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

_WAITS: Final = re.compile(r"\bmark\.(fault|spark)\b")
_GROUP: Final = re.compile(r"\bmark\.xdist_group\(\"(.+?)\"\)")


class TwoLanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """`--dist loadgroup`, with a choice of the next unit."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(module_of(nodeid)) or nodeid

    def _assign_work_unit(self, node: "WorkerController") -> None:
        wants_waiting = int(node.gateway.id.removeprefix("gw")) >= self.numnodes // 2
        for scope, unit in self.workqueue.items():
            if waits(module_of(next(iter(unit)))) == wants_waiting:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def module_of(nodeid: str) -> str:
    """The path of a test's module."""
    return nodeid.partition("::")[0]


@cache
def group_of(module: str) -> str:
    """The group that a module's tests belong to; empty if each is a unit of its own."""
    found = _GROUP.search((ROOT / module).read_text(encoding="utf-8"))
    return found.group(1) if found else ""


@cache
def waits(module: str) -> bool:
    """Whether a module's tests start processes and wait for them."""
    return _WAITS.search((ROOT / module).read_text(encoding="utf-8")) is not None
