import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tandem.cli.interrupts import end_at_interrupts, interrupts_raised
from tests.support.processes import TANDEM

CTRL_C_AT_AN_IMPORT: Final = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
"""
"""Presses Ctrl-C when a module is about to be loaded: at a moment that no pause can hit."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_within_a_command_ctrl_c_is_an_exception_and_elsewhere_it_is_the_end() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_at_interrupts()
    outside = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_raised():
        os.kill(os.getpid(), signal.SIGINT)
    assert outside is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is outside


def test_a_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_at_interrupts()
    with interrupts_raised():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("typer", "--help"),
        ("tandem.cli.command_line", "--help"),
        ("tandem.cluster.spec", "cluster status"),
        ("tandem.drill.errors", "cluster status --config missing.yaml"),
    ],
    ids=["before all", "while the commands are loaded", "in a command", "while an error is said"],
)
def test_ctrl_c_while_modules_are_loaded_ends_without_a_traceback(
    tmp_path: Path, module: str, line: str
) -> None:
    # What the interpreter starts with is not ours: the clean end begins with `tandem.cli.main`.
    *python, code = TANDEM
    code = CTRL_C_AT_AN_IMPORT.replace("MODULE", repr(module)) + code
    done = subprocess.run(
        [*python, code, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_help_loads_no_client() -> None:
    *python, code = TANDEM
    watch = "import atexit, sys; atexit.register(lambda: print('trio' in sys.modules)); "
    done = subprocess.run(
        [*python, watch + code, "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("False\n")
