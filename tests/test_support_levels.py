"""What the quick level has, and what it leaves to the thorough one."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.levels import mark_thorough

FAULT, SLOW, SIM, LONG = ("fault", "slow"), ("slow",), ("sim", "slow"), ("fault", "long")


class Item:
    """A test that has been collected."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self.marks = list(marks)

    def iter_markers(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.marks]

    def add_marker(self, name: str) -> None:
        self.marks.append(name)


def quick(*items: Item) -> list[str]:
    collected: Any = items
    mark_thorough(collected)
    return [item.nodeid for item in items if not {"long", "thorough"} & {*item.marks}]


def test_what_computes_is_quick() -> None:
    assert quick(Item("a/test_it.py::one"), Item("a/test_it.py::two")) == [
        "a/test_it.py::one",
        "a/test_it.py::two",
    ]


@pytest.mark.parametrize("marks", [FAULT, SLOW, SIM])
def test_of_what_takes_a_while_the_first_of_a_directory_is_quick(marks: tuple[str, ...]) -> None:
    assert quick(
        Item("a/test_hours.py::one", *LONG),
        Item("a/test_it.py::one[1]", *marks),
        Item("a/test_it.py::one[2]", *marks),
        Item("a/test_it.py::two"),
        Item("a/test_more.py::one", *marks),
        Item("a/b/test_it.py::one", *marks),
    ) == ["a/test_it.py::one[1]", "a/test_it.py::two", "a/b/test_it.py::one"]


def test_of_spark_the_first_of_all_is_quick() -> None:
    assert quick(
        Item("a/test_it.py::one", "spark"),
        Item("a/test_it.py::two"),
        Item("b/test_it.py::one", "spark", "slow"),
        Item("b/test_it.py::two", *SLOW),
    ) == ["a/test_it.py::one", "a/test_it.py::two", "b/test_it.py::two"]


def test_of_each_kind_there_is_one() -> None:
    assert quick(
        Item("a/test_it.py::one", *SLOW),
        Item("a/test_it.py::two", *SIM),
        Item("a/test_it.py::three", *FAULT),
        Item("a/test_it.py::four", *SIM),
    ) == ["a/test_it.py::one", "a/test_it.py::two", "a/test_it.py::three"]


def test_a_module_can_say_that_its_first_test_is_too_much() -> None:
    assert quick(
        Item("a/test_it.py::one", "thorough", *FAULT),
        Item("a/test_more.py::one", *FAULT),
    ) == ["a/test_more.py::one"]


def test_every_directory_has_tests_in_the_quick_level(request: pytest.FixtureRequest) -> None:
    if request.config.option.keyword:
        pytest.skip("-k leaves out what would be quick")
    directories: dict[str, bool] = {}
    for item in request.session.items:
        directory = item.nodeid.partition("::")[0].rpartition("/")[0]
        if item.get_closest_marker("long") is None:
            is_quick = item.get_closest_marker("thorough") is None
            directories[directory] = directories.get(directory, False) or is_quick
    assert [directory for directory, has_some in directories.items() if not has_some] == []
