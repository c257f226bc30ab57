"""Which version each node of a drill is started as: this one, or another that is installed beside.

The others begin with the version of the Python that is given, as a cluster does that is about to be
upgraded. A file says what both understand: one version back is supported (docs/upgrades.md).
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tandem.cluster.spec import node_command
from tandem.drill.errors import BadOptionsError

NO_OTHER_VERSION: Final = "there is one version alone; give another one by --previous"
LOOK_SECONDS_MAX: Final = 120.0

_SAY: Final = (
    "import importlib.metadata as m, tandem, tandem_server;"
    " print(m.version('tandem-mq'), tandem.__file__)"
)


class Versions:
    """The version of each node's next start. `python` is that of the other installation."""

    def __init__(self, python: Path, nodes: Sequence[str]) -> None:
        self._python = python.absolute()  # as it is here; a link stays one, for it is the way in
        self._others = set(nodes)

    def command(self, file: Path, name: str) -> list[str]:
        """Return the command line of a node; neither version finds the other by PYTHONPATH."""
        command = node_command(file, name)
        if name not in self._others:
            return command
        return ["env", "-u", "PYTHONPATH", str(self._python), *command[1:]]

    def upgrade(self, node: str) -> None:
        """Let the next start of a node be of this version."""
        self._others.discard(node)

    def go_back(self, node: str) -> None:
        """Let the next start of a node be of the other version."""
        self._others.add(node)


def other_version(python: Path) -> str:
    """Return what the Python of another installation has: the number of its version, and where.

    Raises:
        BadOptionsError: it is no Python, or has no server.
    """
    given = f"--previous {python}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [str(python), "-P", "-c", _SAY],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOK_SECONDS_MAX,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadOptionsError(
            f"{given}: it cannot be run ({error}); give the `python` of an environment that has"
            " another version"
        ) from error
    number, _, place = done.stdout.strip().partition(" ")
    if done.returncode or not place:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadOptionsError(
            f"{given}: it has no server of TandemMQ ({last}); install the version before this one"
            " there"
        )
    return f"{number} of {Path(place).parents[1]}"
