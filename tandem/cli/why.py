"""`tandem why`: the life of one message, and what shows each part of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tandem.cli.asking import ask
from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import (
    FAILED,
    WRONG_USAGE,
    CommandError,
    ConfigOption,
    NameServersOption,
)
from tandem.cli.progress import run_blocking
from tandem.cli.times import now_ms
from tandem.cli.why_text import why_lines
from tandem.plain_text import is_utf8, one_line, plain

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.life.result import Finding, Why

MESSAGE_CHARACTERS_MAX: Final = 32_000
"""No longer text can be a key: the properties of a message have room for 32,767 bytes."""


def why(
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE",
            help="Its unique key (what `tandem produce` and RocketMQ print as message id), its"
            " offset id, or one of its keys.",
            show_default=False,
        ),
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--topic", "-t", help="The topic it was sent to; else all are looked through."
        ),
    ] = "",
    store: Annotated[
        list[Path] | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Read these store directories, of stopped or running nodes, and ask nobody."
            " Repeat it, for all nodes of the group.",
            show_default=False,
        ),
    ] = None,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="With --store: read the whole log, and trust no index."),
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Say what became of one message, and what shows it: where it is, who has had it, why not.

    Nodes are asked, or with --store directories are read, ours or RocketMQ's. What cannot be known
    is said, with the reason. Exit status 1 if no such message was found.
    """
    if not message.strip() or len(message) > MESSAGE_CHARACTERS_MAX:
        raise typer.BadParameter("give a message id or a key of a message", param_hint="MESSAGE")
    for text, hint in ((message, "MESSAGE"), (topic, "--topic")):
        if not is_utf8(text):
            raise typer.BadParameter(f"{text!r} is not UTF-8, as all keys are", param_hint=hint)
    if store and (name_server or config):
        raise typer.BadParameter("--store reads directories: without --name-server and --config")
    if scan and not store:
        raise typer.BadParameter("--scan says how to read directories, and --store is not given")
    if store:
        found = _read(message, topic, store, scan=scan)
    else:

        async def question(admin: "Admin") -> "Why":
            return await admin.why(message, topic)

        what = f"asking what became of {one_line(message, 60)}"
        found = ask(what, question, name_server, config)
    _print(found, output_format)
    if not found.is_found:
        raise typer.Exit(FAILED)


def _read(message: str, topic: str, directories: list[Path], *, scan: bool) -> "Why":
    from tandem.log.errors import BadRequestError, LogToolError, NotAStoreError

    def read() -> "Why | LogToolError":
        from tandem.log.life import why_in_stores

        try:
            return why_in_stores(directories, message, topic, now_ms=now_ms(), use_index=not scan)
        except LogToolError as error:
            return error

    found = run_blocking("reading the logs", read)
    if isinstance(found, LogToolError):
        is_usage = isinstance(found, (BadRequestError, NotAStoreError))
        raise CommandError(str(found), WRONG_USAGE if is_usage else FAILED)
    return found


def _print(found: "Why", output_format: Format) -> None:
    if output_format is Format.TABLE:
        for line in why_lines(found):
            typer.echo(line)
        return
    findings = [each for life in found.lives for each in life.findings] or found.absence
    columns: list[Column[Finding]] = [
        Column("time", lambda each: str(each.at_ms) if each.at_ms else None),
        Column("kind", lambda each: each.kind),
        Column("text", lambda each: plain(each.text)),
    ]
    write(output_format, Section(findings, columns), document=found)
