"""A process that forks nodes, as a supervisor of a test does; it prints what it has seen."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trio

from tandem.cluster.errors import ForkServerError
from tandem.cluster.node_forker import NodeForker

PROGRAM = [sys.executable, "-P", "-m", "tests.tandem.cluster.fake_program"]


async def look(forker: NodeForker, log: Path) -> dict[str, Any]:
    environment = dict(os.environ)
    with log.open("ab") as file:
        reporting = await forker.open([*PROGRAM, "report"], file, environment)
        failing = await forker.open([*PROGRAM, "fail"], file, environment)
        sleeping = await forker.open([*PROGRAM, "sleep"], file, environment)
    output = b""
    assert reporting.stdout is not None
    async for chunk in reporting.stdout:
        output += chunk
    statuses = [await reporting.wait(), await failing.wait()]
    parent = int(Path(f"/proc/{sleeping.pid}/stat").read_text().rpartition(")")[2].split()[1])
    sleeping.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeping.pid, os.WSTOPPED | os.WNOWAIT)  # noqa: ASYNC222 - at once
    sleeping.send_signal(signal.SIGKILL)
    statuses.append(await sleeping.wait())
    sleeping.send_signal(signal.SIGKILL)
    return {
        "is_parent": parent == os.getpid(),
        "descriptors": json.loads(output)["descriptors"],
        "leads": json.loads(output)["leads"],
        "statuses": statuses,
    }


async def open_without_server(forker: NodeForker, log: Path) -> str:
    """Kill the fork server, and say what the next node gets."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    try:
        with log.open("ab") as file:
            await forker.open([*PROGRAM, "sleep"], file, dict(os.environ))
    except (ForkServerError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


def main(log: Path) -> None:
    with NodeForker.started() as forker:
        seen = trio.run(look, forker, log)
        seen["without"] = trio.run(open_without_server, forker, log)
    print(json.dumps(seen))


main(Path(sys.argv[1]))
