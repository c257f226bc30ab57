"""`tandem cluster certificates`: a CA for a cluster, and what it signs."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import CommandError, ConfigOption, is_for_people, say


def certificates(
    config: ConfigOption = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help="Where they go; where `tls.ca_file` of the cluster file is, if none is given.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Make one for this client, too. Repeat it.", show_default=False
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long new ones are good.")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make all anew but the CA; its nodes read them.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Make a CA, and certificates of all nodes and of the command line.

    What is there stays, unless it ends within 30 days or lacks an address. Running nodes read new
    ones without a restart.
    """
    from tandem.cluster.spec import default_config
    from tandem.cluster_file.load import load_config

    try:
        from tandem.cluster.certificates import Made, make_certificates
    except ModuleNotFoundError as error:
        raise CommandError(
            "certificates are made with the library cryptography: pip install 'tandem-mq[tls]'; or"
            " make them with your own tools, see docs/security.md"
        ) from error
    from tandem.tls_files import CLIENT_NAME

    cluster = load_config(config or default_config())
    where = directory or (cluster.file.parent / cluster.tls.ca_file).parent
    made = make_certificates(
        cluster,
        where,
        now=dt.datetime.now(dt.UTC),
        days=days,
        clients=[CLIENT_NAME, *(client or [])],
        renew=renew,
    )
    columns: list[Column[Made]] = [
        Column("name", lambda each: each.name),
        Column("ends", lambda each: each.ends.date().isoformat()),
        Column("made now", lambda each: "yes" if each.is_new else "no"),
        Column("file", lambda each: each.file),
    ]
    write(output_format, Section(made, columns))
    if output_format is Format.TABLE and is_for_people() and not cluster.tls.is_on:
        say("tls.mode of the cluster file is disabled: nobody uses them yet")
