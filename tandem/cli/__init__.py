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
        _serve()
    # Takes a third of a second, in which somebody may press Ctrl-C.
    from tandem.cli.command_line import run_command_line

    sys.exit(run_command_line())


def _serve() -> None:
    """Run `tandem testing serve`, for which a test waits; does not return."""
    from tandem.testing.parent_process import ParentProcess

    # First of all: if it ends while this one is loaded, nobody would know who it was.
    parent = ParentProcess()
    if {"-h", "--help", "--json-schema"}.isdisjoint(sys.argv):
        from tandem.testing.fork_server import fork_off_server

        # What nodes need is imported there, beside what the command needs here.
        fork_off_server()
    from tandem.cli.serve_line import run_serve_line

    sys.exit(run_serve_line(parent))
