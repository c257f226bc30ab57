"""Tools that write to a store, for programs that must not import the server.

    python -P -m store repair < request.json

Reads a `RepairRequest` as JSON on standard input, repairs, and prints a `RepairResult` as JSON.

Exit status: 0 done, 1 the store cannot be repaired like this, 2 the request or the command line is
wrong. For 1 and 2 there is one message on standard error, and no traceback.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from store.machine.errors import StoreError
from store.machine.real_disk import RealDisk
from store.repair import RepairRequest, repair_store
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None, request: bytes | None = None) -> int:
    """Run the command line; return the exit status. `request` stands in for standard input."""
    parser = argparse.ArgumentParser(prog="store", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=["repair"])
    parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        data = sys.stdin.buffer.read() if request is None else request
        wanted = decode_json(data, RepairRequest)
        done = repair_store(wanted, RealDisk(), move, wall_clock_ms=_wall_clock_ms)
    except UnreadableError as error:
        return _fail(2, f"the request on standard input: {error}")
    except ValueError as error:
        return _fail(2, str(error))
    except (StoreError, OSError) as error:
        return _fail(1, str(error))
    sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
    sys.stdout.flush()
    return 0


def move(path: str, target: str) -> None:
    """Rename a file or directory of the same file system; make the directory it goes to."""
    if Path(path).exists():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(path).rename(target)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(status: int, text: str) -> int:
    print(text, file=sys.stderr)  # noqa: T201 - for the program that started this one
    return status


if __name__ == "__main__":
    sys.exit(main())
