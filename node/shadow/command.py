"""`python -P -m node shadow`: one shadow, until SIGTERM, SIGINT or the end of standard input.

The first line of standard input is a `ShadowConfig` as JSON. Standard output gets a `ShadowStatus`
a second, a line of JSON each, and at the end `{"error": WORDS}` if there was one; standard error
gets the log. `tandem shadow` is what people use.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import BinaryIO, Final

import msgspec
import trio

from node.shadow.config import ShadowConfig
from node.shadow.shadow import ShadowStatus, run_shadow
from store.machine.machine import Machine
from tandem.wire.untrusted import UnreadableError, decode_json

_log = logging.getLogger(__name__)

LINE_BYTES_MAX: Final = 1 << 20
LIFELINE_FD: Final = 0


class NotAConfigError(Exception):
    """Standard input does not begin with a `ShadowConfig`."""


def read_config(source: BinaryIO) -> ShadowConfig:
    """Read the first line.

    Raises:
        NotAConfigError: it is something else.
    """
    # Without a buffer: what follows is a lifeline, and somebody else waits for its end.
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        one = source.read(1)
        if not one:
            break
        line += one
    try:
        return decode_json(bytes(line), ShadowConfig)
    except UnreadableError as error:
        raise NotAConfigError(
            f"node shadow: standard input is no configuration ({error}); use `tandem shadow`"
        ) from error


async def follow(config: ShadowConfig, machine: Machine) -> None:
    """Run the shadow until it is asked to stop. Errors: as for `run_shadow`."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signal, stop)
        nursery.start_soon(_stop_on_lifeline, stop)
        await run_shadow(config, machine, stop, _print)
        nursery.cancel_scope.cancel()


def _print(status: ShadowStatus) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(status) + b"\n")
    sys.stdout.buffer.flush()


async def _stop_on_signal(
    stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()


async def _stop_on_lifeline(stop: trio.Event) -> None:
    async with trio.lowlevel.FdStream(os.dup(LIFELINE_FD)) as lifeline:
        while await lifeline.receive_some():
            pass
    stop.set()
