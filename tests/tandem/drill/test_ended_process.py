import signal
import subprocess

import pytest
import trio

from tandem.drill.ended_process import end_process
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "seconds", "status"),
    [
        (["cat"], PATIENCE_SECONDS, 0),
        (["sh", "-c", "exec sleep 1000"], 0.1, -signal.SIGKILL),
    ],
)
async def test_it_ends_with_its_input_or_is_killed(
    command: list[str], seconds: float, status: int
) -> None:
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE)
    with trio.CancelScope() as scope:
        scope.cancel()  # as of a drill that is cut short
        await end_process(process, seconds)
    assert process.returncode == status
