"""Tools that write to a store, for programs that must not import the server.

    python -P -m store repair < request.json
    python -P -m store heal < request.json

Reads a `RepairRequest` or a `HealRequest` as JSON on standard input, repairs or heals, and prints a
`RepairResult` or a `HealResult` as JSON.

Exit status: 0 done, 1 the store cannot be repaired like this, 2 the request or the command line is
wrong. For 1 and 2 there is one message on standard error, and no traceback.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from store.log_from_copy import HealRequest, HealResult, heal_log
from store.machine.errors import StoreError
from store.machine.real_disk import RealDisk
from store.machine.real_file import make_directories, sync_directory
from store.repair import RepairRequest, RepairResult, repair_store
from tandem.wire.untrusted import UnreadableError, decode_json


def main(arguments: Sequence[str] | None = None, request: bytes | None = None) -> int:
    """Run the command line; return the exit status. `request` stands in for standard input."""
    parser = argparse.ArgumentParser(prog="store", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=["heal", "repair"])
    command = parser.parse_args(arguments).command
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        data = sys.stdin.buffer.read() if request is None else request
        done: RepairResult | HealResult
        if command == "heal":
            done = heal_log(decode_json(data, HealRequest), RealDisk(), move)
        else:
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
    """Rename a file or directory of the same file system; make the directory it goes to.

    A file takes the place of one that has the name, all or nothing. Durable when it returns.
    """
    if Path(path).exists():
        make_directories(str(Path(target).parent))
        Path(path).rename(target)
        for directory in {Path(path).parent, Path(target).parent}:
            sync_directory(str(directory))


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(status: int, text: str) -> int:
    print(text, file=sys.stderr)  # noqa: T201 - for the program that started this one
    return status


if __name__ == "__main__":
    sys.exit(main())
