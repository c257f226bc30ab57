"""The `tandem` command.

Exit status: 0 done, 1 something failed, 2 the command line or the cluster file is wrong, 130
Ctrl-C. An error that a person can act on is one line on standard error; a traceback is a bug of
ours. Nothing is said, and the status is 1, if nobody reads the output any more, as with `| head`.
"""

import sys

from tandem.cli.interrupts import end_at_interrupts


def main() -> None:
    """Run the command line; does not return."""
    end_at_interrupts()
    if sys.argv[1:3] == ["testing", "serve"]:
        _begin_early()
    # Takes a third of a second, in which somebody may press Ctrl-C.
    from tandem.cli.command_line import run_command_line

    sys.exit(run_command_line())


def _begin_early() -> None:
    """Let what nodes need be imported beside what the command line needs: a test waits for it."""
    if {"-h", "--help", "--json-schema"}.isdisjoint(sys.argv):
        from tandem.testing.fork_server import fork_server

        fork_server()
