"""Which worker of pytest-xdist runs which test: what waits for processes has workers of its own.

    gw2, gw3 ->  groups that wait | tests that wait | tests that compute  <- gw0, gw1

With two cores there are four workers, and they take the work from both ends. A unit of work is all
tests of the modules that name one `xdist_group`, one test of a module that speaks of `slow`, or a
module whose tests are all quick: to hand out ten thousand tests one by one costs more than many of
them. A unit waits if its module speaks of the marks `fault` or `spark`: such tests start processes,
and their own worker has little to do. So as many of those as there are cores run beside as many
tests that keep a core busy. At the quick level few wait, each module is a unit, and each worker has
to collect all tests: it has one worker more than cores.

The marks are looked for in the text of a module. What the workers have collected comes to the
scheduler as node ids only, and with pytest 9.2 and pytest-xdist 3.8 those do not tell the group:
`--dist loadgroup` by itself puts no tests together and does not say so.
"""

import re
from functools import cache
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.paths import ROOT

_WAITS: Final = re.compile(r"\bmark\.(fault|spark)\b")
_TAKES_A_WHILE: Final = re.compile(r"\bmark\.(slow|fault|spark|long)\b")
_GROUP: Final = re.compile(r"\bmark\.xdist_group\(\"(.+?)\"\)")


def put_in_order(items: list[pytest.Item]) -> None:
    """First what waits, the largest units before all; the rest as it is."""
    items.sort(key=lambda item: _rank(_module_of(item.nodeid)))


class TwoLanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """`--dist loadgroup` that takes its units from both ends."""

    def _split_scope(self, nodeid: str) -> str:
        module = _module_of(nodeid)
        is_whole = is_level_quick(self.config) or is_quick(module)
        return group_of(module) or (module if is_whole else nodeid)

    def _assign_work_unit(self, node: "WorkerController") -> None:
        if int(node.gateway.id.removeprefix("gw")) < self.numnodes // 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def is_level_quick(config: pytest.Config) -> bool:
    """Whether this run is of the quick level; see `levels.py`."""
    return "not thorough" in config.option.markexpr


def _module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _rank(module: str) -> int:
    if not waits(module):
        return 2
    return 0 if group_of(module) else 1


@cache
def group_of(module: str) -> str:
    """The group that a module's tests belong to; empty if each is a unit of its own."""
    found = _GROUP.search((ROOT / module).read_text(encoding="utf-8"))
    return found.group(1) if found else ""


@cache
def is_quick(module: str) -> bool:
    """Whether none of a module's tests takes a while."""
    return _TAKES_A_WHILE.search((ROOT / module).read_text(encoding="utf-8")) is None


@cache
def waits(module: str) -> bool:
    """Whether a module's tests start processes and wait for them."""
    return _WAITS.search((ROOT / module).read_text(encoding="utf-8")) is not None
