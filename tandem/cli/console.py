"""`tandem console`: a page that shows a cluster, served by this process."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.interrupts import INTERRUPTED, stopped_by_signals
from tandem.cli.output import (
    ConfigOption,
    NameServersOption,
    access_of,
    run,
    say,
)

LISTEN_DEFAULT = "127.0.0.1:9880"


def console(
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where browsers find it."),
    ] = LISTEN_DEFAULT,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            metavar="NAME",
            help="A name by which browsers call it, beside the address. Repeatable.",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        str,
        typer.Option("--tls-cert", metavar="FILE", help="Its certificate, PEM, with the chain."),
    ] = "",
    tls_key: Annotated[
        str, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")
    ] = "",
    reports: Annotated[
        Path,
        typer.Option(
            "--reports", metavar="DIRECTORY", help="Where reports of drills are, each in its own."
        ),
    ] = Path("report"),
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve a page that shows the cluster, until Ctrl-C.

    In a cluster with users one logs in with an access key and its secret, and may what that user
    may. Else it prints an address that is good for one login. Beyond this machine it takes TLS and
    users.
    """
    from tandem.cluster.spec import default_config
    from tandem.cluster_file.load import load_config
    from tandem.console.command import ConsoleOptions, run_console

    host, _, port = listen.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65_536
    if not host or not is_port:
        raise typer.BadParameter("give HOST:PORT, such as 127.0.0.1:9880", param_hint="--listen")
    has_file = config is not None or not name_server
    options = ConsoleOptions(
        access=access_of(name_server, config),
        config=load_config(config or default_config()) if has_file else None,
        host=host,
        port=int(port),
        host_names=host_name or [],
        certificate_file=tls_cert,
        key_file=tls_key,
        reports=reports,
    )

    async def serve() -> list[int]:
        async with stopped_by_signals() as stopped:
            await run_console(options, say)
        return stopped

    stopped = run(serve)
    if signal.SIGINT in stopped:
        raise typer.Exit(INTERRUPTED)
