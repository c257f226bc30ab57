"""`tandem drill`: functions for the command line."""

import errno
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster_file.choices import CoordinatorKind, GroupKind
from tandem.cluster_file.errors import ClusterError
from tandem.drill.comparison import Difference, compare
from tandem.drill.errors import BadOptionsError, DrillError, NotReadyError, first_of
from tandem.drill.group_choice import choose_groups, read_groups
from tandem.drill.history import History, check_history, find_run, read_history
from tandem.drill.nemesis import World
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import (
    EXIT_DEFECT,
    EXIT_HELD,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOT_RUN,
)
from tandem.drill.preflight import MARKER_NAME, check_libraries, claimed
from tandem.drill.scenario_file import FOLDER, catalogue
from tandem.drill.targets.process_file import read_process_file
from tandem.plain_text import plain_json, plain_lines

__all__ = ["DrillOptions", "ListedScenario", "compared", "history_of", "listed", "run_drill"]

RANDOM: Final = "random"
"""In the place of scenarios: those of a seed."""

DEFECT_NAME: Final = "defect.txt"
"""The traceback of a drill that failed by a mistake of ours, beside what it has left."""


def run_drill(options: DrillOptions) -> int:
    """Hold a drill, or drills of chance, and print how it went; return the exit status.

    0: every promise and expectation held. 1: one did not. 2: it could not be run, as one line on
    standard error says. 3: the machine was too slow to say. 4: this machine could play none of the
    scenarios. 5: the drill itself failed, which says nothing about the cluster. 130: it was
    interrupted.

    To be called by a program that does nothing else: SIGTERM and SIGHUP count as Ctrl-C from here.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has no sign for a check mark or an input's name is no reason to stop.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = _run(options)
    except (DrillError, ClusterError) as error:
        status = _not_run(error)
    except KeyboardInterrupt:
        status = _interrupted()
    except BaseExceptionGroup as errors:
        status = _several(errors, options)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a broken promise
        status = _failed_itself(error, options)
    return _said(status)


def _run(options: DrillOptions) -> int:
    if complaints := options.complaints():
        raise BadOptionsError("; ".join(complaints))
    check_libraries(spark=options.spark or options.spark_stream)
    if options.history is not None:
        check_history(options.history)
    # Only now: it needs libraries of the `drill` extra, and their absence is one clear line.
    from tandem.drill.session import hold  # noqa: PLC0415

    if options.scenarios == (RANDOM,):
        return _hold_by_chance(options, hold)
    return _kept(options, hold(options))


def _interrupted() -> int:
    _tell("interrupted; there is no report\n")
    return EXIT_INTERRUPTED


def _several(errors: BaseExceptionGroup[BaseException], options: DrillOptions) -> int:
    """Say what ended the tasks of a drill: they all say the same, or follow from one another."""
    if errors.subgroup(KeyboardInterrupt) is not None:
        return _interrupted()
    known, others = errors.split((DrillError, ClusterError))
    if known is None or others is not None:
        return _failed_itself(errors, options)
    first = first_of(known)
    assert isinstance(first, DrillError | ClusterError), "split has chosen them"
    return _not_run(first)


def _failed_itself(error: BaseException, options: DrillOptions) -> int:
    """Say in one line that the drill has a mistake, and keep the traceback for who mends it."""
    cause = first_of(error) if isinstance(error, BaseExceptionGroup) else error
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return _not_run(DrillError(f"{cause}; make room, or give --out elsewhere"))
    words = plain_lines(f"{type(cause).__name__}: {cause}").partition("\n")[0]
    lines = "".join(traceback.format_exception(error))
    kept = options.out / DEFECT_NAME
    where = f"its traceback is in {kept}"
    try:
        if not (options.out / MARKER_NAME).exists():
            raise FileNotFoundError(options.out)
        kept.write_text(lines, encoding="utf-8", errors="backslashreplace")
    except OSError:
        _tell(lines)
        where = "its traceback is above"
    _tell(
        f"error: the drill itself failed, and says nothing about the cluster: {words}; {where}:"
        " report it as a mistake of TandemMQ\n"
    )
    return EXIT_DEFECT


def _tell(text: str) -> None:
    """Write to standard error, unless nobody reads that any more: a status says as much."""
    with suppress(OSError):
        sys.stderr.write(text)


def _said(status: int) -> int:
    """Let the output be written now: that nobody reads it any more changes no verdict."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _kept(options: DrillOptions, status: int) -> int:
    """Keep a drill for others; that this fails is said, and hides no broken promise."""
    from tandem.drill.keeping import keep  # noqa: PLC0415 - as `hold`

    try:
        keep(options.out, options.history, options.label)
    except DrillError as error:
        failed = _not_run(error)
        return failed if status == EXIT_HELD else status
    except KeyboardInterrupt:
        _tell("interrupted while the drill was kept for others; its report is there\n")
        return EXIT_INTERRUPTED if status == EXIT_HELD else status
    return status


def _not_run(error: DrillError | ClusterError) -> int:
    _tell(f"error: {plain_lines(str(error))}\n")
    is_late = isinstance(error, NotReadyError) and error.machine_was_slow
    return EXIT_INCONCLUSIVE if is_late else EXIT_NOT_RUN


def _hold_by_chance(options: DrillOptions, hold: Callable[[DrillOptions], int]) -> int:
    """Hold drills of chance; what each says goes to standard error, the result to the output."""
    from tandem.drill.random_drill import RandomDrill, result_lines  # noqa: PLC0415 - as `hold`

    if options.repeat != 1:
        raise BadOptionsError("--repeat: a random drill goes on for --minutes; give only those")
    if options.target != "tandem":
        raise BadOptionsError("random is for --target tandem alone; name scenarios for RocketMQ")
    spec = read_groups(options.config, options.groups)
    group, *_ = choose_groups(spec, options.group, options.seed)
    # The same in all episodes: faults are on nodes by name.
    options = msgspec.structs.replace(options, group=group.name)
    world = World(
        group=group.kind,
        nodes=tuple(node.name for node in group.nodes),
        owns_coordinator=spec.coordinator.kind is CoordinatorKind.EMBEDDED,
    )

    def held(episode: DrillOptions) -> int:
        with redirect_stdout(sys.stderr):
            return hold(episode)

    with claimed(options.out):
        result = RandomDrill(
            options, world, out=options.out, hold=held, now=time.monotonic, say=_say
        ).run()
    if options.json:
        sys.stdout.buffer.write(plain_json(msgspec.json.encode(result)) + b"\n")
    else:
        sys.stdout.write(plain_lines("\n".join(result_lines(result))) + "\n")
    return result.exit_status


def _say(line: str) -> None:
    _tell(f"{plain_lines(line)}\n")


def history_of(directory: Path) -> History:
    """Return the runs of a history.

    Raises:
        HistoryError: it cannot be read.
    """
    return read_history(directory)


def compared(first: str, second: str, history: Path) -> list[Difference]:
    """Compare two runs, as a person calls them (`find_run`); the older one is the first.

    Raises:
        NoRunError: there is no such run.
        HistoryError: the history cannot be read.
    """
    return compare(find_run(first, history), find_run(second, history))


class ListedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario of the catalogue, as it is listed. `seconds`: about how long it takes."""

    name: str
    group: str
    promise: str
    needs: list[str]
    seconds: float | None


def listed(target: str = "tandem", file: Path | None = None) -> list[ListedScenario]:
    """Return the catalogue of a target; of the cluster that `file` describes, what is for its kind.

    Raises:
        BadOptionsError, ClusterConfigError: the file cannot be read, or is wrong.
    """
    kind = read_process_file(file).kind if target == "processes" and file is not None else None
    is_rocketmq = target == "rocketmq" or (kind is not None and kind.is_rocketmq)
    needs = {"network": "fault proxy", "disks": "root, for small disks", "machines": "a C compiler"}
    return [
        ListedScenario(
            name=scenario.name,
            group=scenario.group,
            promise=scenario.promise,
            needs=[needs[need] for need in scenario.needs],
            seconds=scenario.seconds or None,
        )
        for scenario in catalogue(FOLDER / "rocketmq" if is_rocketmq else FOLDER)
        if kind is None or kind.elects == (scenario.group is GroupKind.FENCED)
    ]
