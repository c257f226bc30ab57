import signal
import sys
from pathlib import Path

import pytest
import trio

from tandem.cluster.node_process import open_process
from tests.support.patience import PATIENCE_SECONDS


@pytest.mark.fault
async def test_a_command_line_is_started_with_pipes_and_a_log(tmp_path: Path) -> None:
    program = "import sys; print(input()); sys.exit('words')"
    with (tmp_path / "log").open("wb") as log, trio.fail_after(PATIENCE_SECONDS):
        process = await open_process([sys.executable, "-S", "-c", program], log, {"A": "b"})
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(b"hello\n")
        answer = b"".join([chunk async for chunk in process.stdout])
        assert (answer, await process.wait()) == (b"hello\n", 1)
        process.send_signal(signal.SIGKILL)
        await process.stdin.aclose()
        await process.stdout.aclose()
    assert (tmp_path / "log").read_text() == "words\n"
