"""Run a program of a cluster: `python -P -m tandem_server node --config cluster.yaml --name NODE`.

The arguments after the program's name are its own; see `node.__main__` and `store.__main__`.
"""

import runpy
import sys
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("node", "store")

_HERE: Final = Path(__file__).resolve().parent

_USAGE: Final = """\
usage: python -P -m tandem_server {node,store} ...

  node --config FILE --name NODE    run one node of a cluster
  node check --config FILE          say what a start of nodes would refuse
  node shadow                       what `tandem shadow` runs
  store repair                      what `tandem log repair --write` runs
"""


def main() -> int:
    """Run the program that the first argument names; return 2 if it names none."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        return 0
    if not sys.argv[1:] or sys.argv[1] not in PROGRAMS:
        sys.stderr.write(_USAGE)
        return 2
    if (refusal := refusal_of(sys.platform)) is not None:
        sys.stderr.write(refusal)
        return 1
    program = sys.argv.pop(1)
    make_importable()
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    return 0


def refusal_of(system: str) -> str | None:
    """Why the programs do not run on a system, None if they do; before they fail to import."""
    return None if system == "linux" else f"nodes run on Linux, and this is {system}\n"


def make_importable() -> None:
    """Let `node`, `ha` and `store` be imported in this process, whatever else has these names."""
    sys.path.insert(0, str(directory_of_programs(_HERE)))


def directory_of_programs(here: Path) -> Path:
    """Where `node`, `ha` and `store` are: in this package if it was installed, else beside it."""
    return here if (here / "node").is_dir() else here.parent


if __name__ == "__main__":
    sys.exit(main())
