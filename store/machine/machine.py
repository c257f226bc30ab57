"""Machine: what the operating system gives to one node. Everything else gets it as arguments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from store.machine import kept_threads
from store.machine.disk import Disk
from store.machine.network import Network
from store.machine.process import ProcessFacts, this_process
from store.machine.real_disk import CALLS_AT_ONCE, RealDisk
from store.machine.service_manager import ServiceManager, this_service_manager
from store.machine.tcp_network import TCPNetwork

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")

THREADS: Final = CALLS_AT_ONCE + 1
"""As many as a disk uses at once, and one for what nobody waits for."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The seams of `run_node`, apart from its configuration and its coordinator."""

    disk: Disk
    network: Network
    """How nodes and clients reach each other; with TLS, if the cluster file says so."""
    wall_clock_ms: Callable[[], int]
    boottime: Callable[[], float]
    """Seconds on a clock that also runs while the machine sleeps."""
    boot_id: str
    """Changes with each start of the operating system."""
    random: random.Random
    clear_network: Network | None = None
    """The same without TLS, for the links that know none; None: there is but one."""
    process: Callable[[], ProcessFacts] | None = None
    """What the system knows of this process; None: nothing."""
    service_manager: ServiceManager | None = None
    """Who wants to hear that this node serves; None: nobody."""
    on_event: Callable[[Any], None] | None = None
    """Called with what the node's replica does, if anybody watches it."""

    @property
    def network_in_clear(self) -> Network:
        """Where nothing is encrypted: for RocketMQ's own replication."""
        return self.clear_network or self.network


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    kept_threads.have(THREADS)
    return Machine(
        disk=RealDisk(),
        network=TCPNetwork(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        boottime=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        boot_id=BOOT_ID_FILE.read_text(encoding="ascii").strip(),
        random=random.Random(),
        process=this_process,
        service_manager=this_service_manager(),
    )
