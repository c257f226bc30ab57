"""An embedded coordinator as a process, to be killed: `serve_embedded.py DIRECTORY PORT`."""

import sys
from pathlib import Path

import trio

from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.server import CoordinatorServer

PASSWORD = "the password of the tests"


async def main(directory: Path, port: int) -> None:
    server = CoordinatorServer(Journal(DiskFile(directory)), password=PASSWORD)
    await server.listen("127.0.0.1", port)
    await server.serve()


trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
