"""`tandem drill`: one function for the command line."""

import io
import signal
import sys

import msgspec

from tandem.cluster_file.errors import ClusterError
from tandem.drill.errors import BadOptionsError, DrillError
from tandem.drill.options import DrillOptions
from tandem.drill.preflight import check_libraries
from tandem.drill.scenario_file import catalogue
from tandem.drill.verdict import EXIT_INTERRUPTED, EXIT_NOT_RUN
from tandem.plain_text import plain_lines

__all__ = ["DrillOptions", "ListedScenario", "listed", "run_drill"]


def run_drill(options: DrillOptions) -> int:
    """Hold a drill and print how it went; return the exit status.

    0: every promise and expectation held. 1: one did not, or the drill could not be run to its
    end. 2: it could not be run, as one line on standard error says. 3: all that failed followed a
    lease that was lost because the machine was slow. 130: it was interrupted.

    To be called by a program that does nothing else: SIGTERM and SIGHUP count as Ctrl-C from here.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has no sign for a check mark or an input's name is no reason to stop.
        sys.stdout.reconfigure(errors="replace")
    try:
        if complaints := options.complaints():
            raise BadOptionsError("; ".join(complaints))
        check_libraries(spark=options.spark or options.spark_stream)
        # Only now: it needs libraries of the `drill` extra, and their absence is one clear line.
        from tandem.drill.session import hold  # noqa: PLC0415

        return hold(options)
    except (DrillError, ClusterError) as error:
        sys.stderr.write(f"error: {plain_lines(str(error))}\n")
        return EXIT_NOT_RUN
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; there is no report\n")
        return EXIT_INTERRUPTED


class ListedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario of the catalogue, as it is listed. `seconds`: about how long it takes."""

    name: str
    group: str
    promise: str
    needs: list[str]
    seconds: float | None


def listed() -> list[ListedScenario]:
    """Return the catalogue."""
    needs = {"network": "fault proxy", "disks": "root, for small disks"}
    return [
        ListedScenario(
            name=scenario.name,
            group=scenario.group,
            promise=scenario.promise,
            needs=[needs[need] for need in scenario.needs],
            seconds=scenario.seconds or None,
        )
        for scenario in catalogue()
    ]
