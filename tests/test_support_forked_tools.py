"""A forked tool is to its page what the program would be: output, status, signals, directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.page_room import Room, tool_forker
from tests.support.page_steps import RunLine, WriteFile

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "room").mkdir()
    with tool_forker(tmp_path) as place:
        yield Room(tmp_path / "room", "127.9.9", forker=place)


def test_a_forked_tool_is_as_the_program_itself(room: Room) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['MINE'], __name__); sys.exit(3)"
    room.play(
        [
            WriteFile("program.py", code),
            WriteFile("wrong.py", "1 / 0"),
            WriteFile("long.py", "import time; print('begun', flush=True); time.sleep(999)"),
            RunLine("arguments", "MINE=1 python program.py a b", "['a', 'b'] 1 __main__", exits=3),
            RunLine("pipe", "echo x | tandem --version | cat", "tandem ..."),
            RunLine("traceback", "python wrong.py", "...\nZeroDivisionError...", exits=1),
            RunLine("a mistake", "tandem nonsense", "error: ...\n...", exits=2),
            RunLine("Ctrl-C", "python long.py", "begun", until="begun"),
            RunLine("of Python itself", "python -c 'print(1)'", "1"),
        ]
    )
