"""The audit trail of a supervisor: who has ordered what over its socket, or by a signal.

Each order is a line when it is carried out or refused; asking for the status is none. The kernel
says who the other process is.
"""

from __future__ import annotations

import logging
import pwd
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from tandem.audit_line import AuditLine, moment
from tandem.cluster.errors import AuditFileError
from tandem.cluster.spec import SUPERVISOR
from tandem.process_log import open_audit_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tandem.cluster.spec import ClusterSpec

TEXT_MAX: Final = 256
WHY_MAX: Final = 2_048


class Peer(NamedTuple):
    """The process at the other end of a Unix socket."""

    pid: int
    uid: int

    @property
    def who(self) -> str:
        """The user of this machine."""
        try:
            return f"user {pwd.getpwuid(self.uid).pw_name} of this machine"
        except KeyError:
            return f"user {self.uid} of this machine"


class OrderTrail:
    """The trail of one supervisor."""

    def __init__(self, write: Callable[[str], object], wall_clock_ms: Callable[[], int]) -> None:
        self._write = write
        self._wall_clock_ms = wall_clock_ms

    def ordered(self, peer: Peer, command: str, node: str | None, refusal: str, why: str) -> None:
        """An order was carried out, or refused: `refusal` is then the name of the error."""
        self._line(
            who=peer.who,
            from_=f"process {peer.pid}",
            request=command,
            about=[f"Node:{node[:TEXT_MAX]}"] if node else [],
            result=refusal or "SUCCESS",
            why=why[:WHY_MAX],
        )

    def turned_away(self, peer: Peer) -> None:
        """A process of another user has connected."""
        self._line(
            who=peer.who,
            from_=f"process {peer.pid}",
            request="connection",
            result="NO_PERMISSION",
            why="orders are for the user of the supervisor, and for root",
        )

    def signalled(self, number: int) -> None:
        """A signal stops the cluster; who has sent it is not known."""
        name = signal.Signals(number).name
        self._line(who="whoever signals", from_=name, request="down", result="SUCCESS")

    def _line(self, **facts: object) -> None:
        time_ = moment(self._wall_clock_ms())
        self._write(AuditLine(time=time_, node=SUPERVISOR, **facts).text)  # type: ignore[arg-type]


@contextmanager
def order_trail(spec: ClusterSpec) -> Iterator[OrderTrail]:
    """The trail of the supervisor of a cluster, in a file beside those of its nodes.

    Raises:
        AuditFileError: It cannot be written.
    """
    file = spec.log_file(f"{SUPERVISOR}.audit")
    try:
        output = open_audit_log(file, spec.logging)
    except OSError as error:
        raise AuditFileError(file, error.strerror or str(error)) from error

    def write(text: str) -> None:
        # To the file itself: several supervisors may be in one process.
        output.handle(logging.makeLogRecord({"msg": text}))

    try:
        yield OrderTrail(write, lambda: time.time_ns() // 1_000_000)
    finally:
        output.close()
