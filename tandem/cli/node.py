"""`tandem node`: one node by itself: whether it would start, its systemd unit, how it is left."""

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write, write_words
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import FAILED, CommandError, ConfigOption, access_of_spec, finite, say
from tandem.cli.progress import run_blocking, run_with_progress
from tandem.plain_text import plain
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from tandem.cli.group_orders import Outcome
    from tandem.cluster.spec import ClusterSpec

CHECK_SECONDS_MAX: Final = 120.0
"""Longer than the coordinator is waited for, for each of many nodes."""

_IN_A_UNIT: Final = re.compile(r"[^\s\"'$\\\x00-\x1f]+")

app = typer.Typer(
    cls=TandemGroup,
    help="One node by itself: would it start, its systemd unit, leaving it.",
    no_args_is_help=True,
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as in the file.")]


class StartFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one node; a start ends with `exit_status`, and 0 does not keep it."""

    node: str
    subject: str
    text: str
    exit_status: int = 0


@app.command()
def check(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="All of this machine, if left out."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Say what a start of nodes here would refuse, without starting or writing anything.

    Looks at the cluster file, secret, certificates, ports, directories and coordinator. Exit status
    0: they would start; else that of the start.
    """
    from tandem.cluster.spec import SERVER, default_config, node_environment, read_spec

    file = config or default_config()
    spec = read_spec(file)
    names = [f"--name={spec.node(name).name}" for name in nodes or []]
    command = [*SERVER, "node", "check", f"--config={file}", "--format=findings", *names]
    try:
        done = run_blocking("checking", _run, command, node_environment())
    except* subprocess.TimeoutExpired as error:
        raise CommandError(
            f"the check has not ended within {CHECK_SECONDS_MAX:g} s: name fewer nodes"
        ) from error
    try:
        findings = [decode_json(line, StartFinding) for line in done.stdout.splitlines()]
    except UnreadableError as error:
        raise CommandError(f"the check has failed: {error}") from error
    if done.returncode and not findings:
        raise CommandError(done.stderr.decode(errors="replace").strip(), done.returncode)
    columns: list[Column[StartFinding]] = [
        Column("node", lambda each: each.node),
        Column("start", lambda each: "refused" if each.exit_status else "note", _STYLES),
        Column("status", lambda each: each.exit_status or None),
        Column("about", lambda each: each.subject),
        Column("what", lambda each: each.text, folds_at=" "),
    ]
    write(output_format, Section(findings, columns, none="nothing keeps them from starting"))
    if done.returncode:
        raise typer.Exit(done.returncode)


_STYLES: Final = {"refused": "bold red"}


def _run(command: list[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=CHECK_SECONDS_MAX,
        check=False,
    )


@app.command()
def unit(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", metavar="FILE", help="Where the cluster file is there."),
    ] = Path("/etc/tandem/cluster.yaml"),
    data: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="What the node may write, and nothing else.")
    ] = Path("/var/lib/tandem"),
    user: Annotated[str, typer.Option(help="Whom it runs as.")] = "tandem",
    python: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The Python with TandemMQ.", show_default="this one"),
    ] = None,
) -> None:
    """Print the systemd unit tandem@.service, of which each node is an instance.

    Write it to /etc/systemd/system/tandem@.service, and `systemctl enable --now tandem@NODE`.
    """
    from tandem.cluster.units import unit_text

    say(
        unit_text(
            python=_word(python or Path(sys.executable), "--python"),
            config=_word(config, "--config"),
            data=_word(data, "--data"),
            user=_word(user, "--user"),
        ).rstrip("\n")
    )


def _word(value: Path | str, option: str) -> str:
    """Return what can be in a unit as it is: one word, and a path from the root on."""
    text = str(value.absolute()) if isinstance(value, Path) else value
    if _IN_A_UNIT.fullmatch(text) is None:
        raise CommandError(
            f"{option} {text!r} is no word that a unit of systemd can have as it is: use a name"
            " without blanks, quotes, $ and backslashes"
        )
    return text


@app.command()
def leave(
    node: NodeArgument,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0.0,
            max=86_400,
            callback=finite,
            help="Seconds to wait for the next master.",
        ),
    ] = 20.0,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Have a node hand over before it is stopped: if it is master, another one becomes it.

    The unit's ExecStop and a container's preStop call it. Exit status 0: the node is not master.
    """
    from tandem.cluster.spec import default_config, read_spec
    from tandem.cluster_file.choices import GroupKind

    spec = read_spec(config or default_config())
    group = spec.node(node).group
    if spec.groups[group].kind is not GroupKind.FENCED:
        words = f"{node} is of a classic group: nobody takes its place"
        write_words(output_format, {"node": node, "done": words}, words)
        return
    outcome = run_with_progress("waiting for another master", _leave, spec, group, node, wait)
    if outcome.exit_status:
        raise CommandError(plain(outcome.text), FAILED)
    write_words(output_format, {"node": node, "done": outcome.text}, outcome.text)


async def _leave(spec: "ClusterSpec", group: str, node: str, wait: float) -> "Outcome":
    from tandem.cli.group_orders import Came, Outcome, resign
    from tandem.client import Admin
    from tandem.views.cluster_look import coordinator_of, members_of
    from tandem.views.fenced_group import FencedGroup
    from tandem.views.group_view import DOWN

    async with Admin(access_of_spec(spec)) as admin, coordinator_of(spec) as coordinator:
        asked = FencedGroup(spec.name, group, members_of(spec, group), admin, coordinator)
        view = await asked.view()
        role = next(each.role for each in view.nodes if each.node == node)
        if view.master != node and (view.master or role != DOWN):
            who = f"{view.master} is" if view.master else "nobody is"
            return Outcome(Came.DONE, f"{node} is not master of {group}: {who}")
        return await resign(asked, accept_loss=False, wait_seconds=wait)
