"""`tandem drill`: one function for the command line."""

import sys

from tandem.cluster.errors import ClusterError
from tandem.drill.errors import BadOptionsError, DrillError
from tandem.drill.options import DrillOptions
from tandem.drill.preflight import check_libraries
from tandem.drill.verdict import EXIT_INTERRUPTED, EXIT_NOT_PLAYED

__all__ = ["DrillOptions", "run_drill"]


def run_drill(options: DrillOptions) -> int:
    """Play a drill and print how it went; return the exit status.

    0: every promise and expectation held. 1: one did not, or the drill could not be played to its
    end. 2: it could not be played, as one line on standard error says. 130: it was interrupted.
    """
    try:
        if complaints := options.complaints():
            raise BadOptionsError("; ".join(complaints))
        check_libraries(spark=options.spark)
        # Only now: it needs libraries of the `drill` extra, and their absence is one clear line.
        from tandem.drill.session import run  # noqa: PLC0415

        return run(options)
    except (DrillError, ClusterError) as error:
        sys.stderr.write(f"tandem drill: {error}\n")
        return EXIT_NOT_PLAYED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
