from pathlib import Path

import pytest

from tests.support.source_tree import (
    dotted_name_exists,
    functions,
    import_cycles,
    is_excused,
    lines_of,
    named_modules,
    named_paths,
    path_exists,
    prose,
    syntax_tree,
)

HERE = Path(__file__)


def test_modules_that_can_reach_each_other_are_a_cycle() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert import_cycles(graph) == {frozenset("abc"), frozenset("de")}
    assert import_cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()


CODE = '''
"""A module.

Long because it is a table.
"""

class A:
    def short(self):
        """Not counted:
        this is two lines."""
        return 1

# Long because nobody
# has split it.
@decorated
def long():
    # Short because of this.
    return 2
'''


def test_lines_are_counted_without_the_docstring_and_an_excuse_is_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(CODE.lstrip())
    found = dict(functions(file))
    assert {name: lines_of(function) for name, function in found.items()} == {
        "A.short": 2,
        "long": 3,
    }
    assert is_excused(file, syntax_tree(file))
    assert is_excused(file, found["long"])
    assert not is_excused(file, found["A.short"])


def test_paths_and_modules_are_found_in_words_and_not_in_code(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""See `store/config.py`."""\nx = "no/such.py"  # and store.log.log_end\n')
    text = prose(file)
    assert named_paths(text) == ["store/config.py"]
    assert named_modules(text) == ["store.log.log_end"]


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("store.log", True),
        ("store.log.log_end", True),
        ("store.log.no_such_module", False),
        ("tandem.client.Producer", True),
        ("tandem.client.NoSuchName", False),
        ("tests.support", True),
    ],
)
def test_a_dotted_name_is_a_module_or_in_one(name: str, *, exists: bool) -> None:
    assert dotted_name_exists(name) is exists


@pytest.mark.parametrize(
    ("path", "exists"),
    [
        ("store/log/log_end.py", True),
        ("store/log/log_*.py", True),
        ("store/log/no_such.py", False),
        ("support/lanes.py", True),
        ("support/no_such.py", False),
    ],
)
def test_a_path_begins_at_the_root_or_beside_the_file(path: str, *, exists: bool) -> None:
    assert path_exists(path, HERE) is exists
