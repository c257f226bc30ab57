"""Programs of nodes in a process of somebody else, who has modules of the same names."""

import subprocess
import sys
from pathlib import Path

import pytest

from tandem_server.inside import inside

OF_A_USER = """
import sys
import store                     # the user's
from tandem_server.inside import inside

play = inside("node.simulated.play")
import node                      # the user's, too
import ha

assert store.WHOSE == node.WHOSE == ha.WHOSE == "of somebody else", (store, node, ha)
assert not [name for name in sys.modules if name.startswith(("store.", "node.", "ha."))]
import tandem_server.store.machine.disk as disk
assert play.deterministic_trio.__name__ == "tandem_server.node.simulated.deterministic_trio"
assert inside("store.machine.disk") is disk
ran = []

async def test(room):
    ran.append(room.group.master())

play.play(1, test, lambda *_: None)
assert ran == ["broker-a-1"] or ran[0].startswith("broker-a-"), ran
assert not [name for name in sys.modules if name.startswith(("store.", "node.", "ha."))]
print("well")
"""


@pytest.mark.slow
def test_modules_of_a_user_with_the_same_names_stay_theirs(tmp_path: Path) -> None:
    for name in ("node", "ha", "store"):
        (tmp_path / f"{name}.py").write_text('WHOSE = "of somebody else"\n', encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(OF_A_USER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout == "well\n", done.stderr


def test_a_module_that_is_not_there_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        inside("node.simulated.nothing")
    with pytest.raises(ModuleNotFoundError):
        inside("store_of_nobody")


def test_a_module_is_imported_once_and_knows_its_package() -> None:
    errors = inside("store.machine.errors")
    assert errors is inside("store.machine.errors")
    assert errors.__name__ == "tandem_server.store.machine.errors"
    assert inside("ha.errors").__name__ == "tandem_server.ha.errors"
