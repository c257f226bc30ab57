"""The first half of `tandem log repair --from`: the log is healed from another copy of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from tandem.cli.formats import Format
from tandem.cli.output import print_json, say, say_error
from tandem.cli.progress import progress

if TYPE_CHECKING:
    from pathlib import Path

    from tandem.log.healing import HealPlan
    from tandem.log.index_file import IndexSettings


class HowToHeal(NamedTuple):
    """What the command line asks for."""

    jobs: int
    settings: IndexSettings | None
    write: bool
    with_older: bool
    output_format: Format


def heal_log(directory: Path, source: Path, commit_log: list[Path], how: HowToHeal) -> bool:
    """Heal the log in `directory` from `source`, or say what that would do.

    Returns:
        Whether the repair of the store is to go on: not where a dry run has shown what it would
        copy, for what would be found after that is not known yet.

    Raises:
        typer.Exit: it is refused, or places are left that are bad in both; the words are printed.
        LogToolError: see `plan_healing` and `write_healing`.
    """
    from tandem.log import open_store_directory, verify_store
    from tandem.log.healing import plan_healing
    from tandem.log.repair import write_healing

    store = open_store_directory(directory, commit_log_directories=commit_log)
    other = open_store_directory(source)
    with progress("verify") as on_progress:
        report = verify_store(
            store, jobs=how.jobs, index_settings=how.settings, on_progress=on_progress
        )
    plan = plan_healing(
        store,
        other,
        report,
        with_older=how.with_older,
        commit_log_directories=[str(path.resolve()) for path in commit_log],
    )
    if how.output_format in (Format.JSON, Format.JSONL):
        return _for_programs(plan, write=how.write)
    if plan.is_needless:
        say("the log is whole as far as its copy can show")
        return True
    for step in plan.steps:
        say(f"{'' if how.write else 'would '}{step}")
    _say_what_stays(plan)
    if not how.write:
        say("would then verify the store, and build anew what contradicts the log")
        say("dry run: nothing was changed; add --write to do it")
        return False
    done = write_healing(plan)
    say(f"healed: {done.healed_bytes} bytes in {len(done.healed)} files of the log")
    for path in done.kept:
        say(f"kept: {path}")
    return True


def _say_what_stays(plan: HealPlan) -> None:
    for place in plan.left:
        say_error(place)
    if plan.refusal:
        say_error(plan.refusal)
    if plan.refusal or (plan.left and not plan.files):
        raise typer.Exit(1)


def _for_programs(plan: HealPlan, *, write: bool) -> bool:
    from tandem.log.repair import write_healing

    is_done = write and bool(plan.files) and not plan.refusal
    print_json(
        {
            "steps": plan.steps,
            "left": plan.left,
            "refusal": plan.refusal,
            "done": write_healing(plan) if is_done else None,
        }
    )
    if plan.refusal or (plan.left and not plan.files):
        say_error(plan.refusal or plan.left[0])
        raise typer.Exit(1)
    return is_done or plan.is_needless
