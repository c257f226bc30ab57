"""`tandem shadow`: copy the log of a running RocketMQ master, without being its slave.

A process of the server, `tandem_server node shadow`, does the copying. This one prints what the
other reports, stops it, and turns its last words into an error and a status. However this process
ends, the other one ends with it: the end of its standard input is the sign.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from tandem.cli.formats import Format, FormatOption
from tandem.cli.output import (
    FAILED,
    WRONG_USAGE,
    CommandError,
    human_bytes,
    is_for_people,
    named_keys,
    print_json,
    run,
    say,
)
from tandem.plain_text import plain
from tandem.wire.untrusted import decode_json

if TYPE_CHECKING:
    import trio

LINE_SECONDS: Final = 10
"""From one line to the next where there is no terminal, and nothing else is new."""

_Status = dict[str, Any]


class ShadowOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for the server's process: a line of JSON. See `node.shadow.config`."""

    directory: str
    master: "Address"
    name_servers: list["Address"]
    broker_name: str
    count_as_slave: bool
    slave_timeout_ms: int
    commit_log_file_bytes: int
    file_reserved_time_hours: int
    tls: dict[str, Any] | None = None
    user: dict[str, str] | None = None


class Address(msgspec.Struct, frozen=True):
    """An address and a port."""

    ip: str
    port: int


MasterArgument = Annotated[
    str, typer.Argument(metavar="HOST:HA_PORT", help="The master, and where its slaves dial.")
]
DirectoryOption = Annotated[
    Path, typer.Option("--directory", "-d", help="Where the copy goes: empty, or a shadow.")
]
NameServerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--name-server",
        "-n",
        metavar="HOST:PORT",
        help="Asked where the master is. Repeat it, for all of them.",
        show_default=False,
    ),
]
BrokerOption = Annotated[
    str, typer.Option(metavar="NAME", help="Which broker of the name servers it is.")
]
RetainOption = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Delete files of the copy that are older.")
]
FileSizeOption = Annotated[
    int,
    typer.Option(
        metavar="BYTES",
        min=0,
        max=1 << 40,
        help="mappedFileSizeCommitLog of the master; 0: ask it, or 1 GiB.",
    ),
]
SlaveTimeoutOption = Annotated[
    int, typer.Option(min=0, max=3_600_000, help="slaveTimeout of the master.")
]
CountOption = Annotated[
    bool,
    typer.Option(
        "--count-as-slave", help="Acknowledge: producers that wait for a slave are answered."
    ),
]
CAFileOption = Annotated[
    str,
    typer.Option(
        "--tls-ca-file",
        metavar="FILE",
        help="Ask name servers and the master over TLS; the CA that has signed for them.",
    ),
]
CertificateFileOption = Annotated[
    str, typer.Option("--tls-certificate-file", metavar="FILE", help="Shown to those who ask.")
]
KeyFileOption = Annotated[
    str, typer.Option("--tls-key-file", metavar="FILE", help="The key of that certificate.")
]
AnyHostOption = Annotated[
    bool,
    typer.Option(
        "--tls-any-host", help="Believe any certificate of that CA, as RocketMQ's clients do."
    ),
]
UntilOption = Annotated[bool, typer.Option("--until-caught-up", help="Stop when all is copied.")]


def shadow(
    master: MasterArgument,
    directory: DirectoryOption,
    name_server: NameServerOption = None,
    broker: BrokerOption = "",
    retain_hours: RetainOption = 72,
    commit_log_file_size: FileSizeOption = 0,
    slave_timeout_ms: SlaveTimeoutOption = 3_000,
    count_as_slave: CountOption = False,
    until_caught_up: UntilOption = False,
    tls_ca_file: CAFileOption = "",
    tls_certificate_file: CertificateFileOption = "",
    tls_key_file: KeyFileOption = "",
    tls_any_host: AnyHostOption = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Follow the log of a RocketMQ master until Ctrl-C, and never count as its slave.

    The copy is a store: Spark, `tandem log` and RocketMQ read it. The log itself comes in clear:
    RocketMQ's replication knows no TLS.
    """
    if until_caught_up and not name_server:
        raise CommandError(
            "--until-caught-up needs --name-server: it is the master who says how much there is",
            WRONG_USAGE,
        )
    order = ShadowOrder(
        directory=str(directory.absolute()),
        master=_resolved(master),
        name_servers=[_resolved(each) for each in name_server or []],
        broker_name=broker,
        count_as_slave=count_as_slave,
        slave_timeout_ms=slave_timeout_ms,
        commit_log_file_bytes=commit_log_file_size,
        file_reserved_time_hours=retain_hours,
        tls=_tls_order(tls_ca_file, tls_certificate_file, tls_key_file, any_host=tls_any_host),
        user=_user_order(),
    )
    words = _Words(output_format)
    run(_follow, order, words, until_caught_up)
    words.end()


def _tls_order(
    ca_file: str, certificate_file: str, key_file: str, *, any_host: bool
) -> dict[str, Any] | None:
    from tandem.tls_files import TLSFiles

    if not (ca_file or certificate_file or key_file or any_host):
        return None

    def path_of(file: str) -> str:
        return str(Path(file).absolute()) if file else ""

    try:
        files = TLSFiles(
            path_of(ca_file),
            path_of(certificate_file),
            path_of(key_file),
            check_hostname=not any_host,
        )
    except ValueError as error:
        raise CommandError(f"--tls-…: {error}", WRONG_USAGE) from error
    files.client_context()  # says here what cannot be used
    order: dict[str, Any] = msgspec.to_builtins(files)
    return order


def _user_order() -> dict[str, str] | None:
    access_key, secret_key = named_keys()
    return {"access_key": access_key, "secret_key": secret_key} if access_key else None


def _resolved(text: str) -> Address:
    """Read `host:port`; a name is looked up now, and not again.

    Raises:
        CommandError: it is something else, or nobody knows the name.
    """
    from tandem.client.core import split_address

    try:
        host, port = split_address(text)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except ValueError as error:
        raise CommandError(str(error), WRONG_USAGE) from error
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"{text}: {reason}; give an address", WRONG_USAGE) from error
    return Address(str(found[0][4][0]), port)


async def _follow(order: ShadowOrder, words: "_Words", until_caught_up: bool) -> None:
    import trio

    from tandem.cluster.spec import SERVER, node_environment

    process = await trio.lowlevel.open_process(
        [*SERVER, "node", "shadow"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=node_environment(),
        # Ctrl-C is ours: the other one then stops in good order.
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_on_signal, signals, process.stdin)
            await process.stdin.send_all(msgspec.json.encode(order) + b"\n")
            error = ""
            async for status in _statuses(process.stdout):
                error = status.get("error", error)
                if "error" in status:
                    continue
                words.say(status)
                if until_caught_up and _is_caught_up(status):
                    await process.stdin.aclose()
            exit_status = await process.wait()
            nursery.cancel_scope.cancel()
    if exit_status:
        how = error or f"the process that copies ended with status {exit_status}; see above"
        raise CommandError(how, exit_status if exit_status == WRONG_USAGE else FAILED)


async def _close_on_signal(signals: AsyncIterator[int], lifeline: "trio.abc.SendStream") -> None:
    async for _ in signals:
        await lifeline.aclose()


async def _statuses(output: "trio.abc.ReceiveStream") -> AsyncIterator[_Status]:
    rest = b""
    async for data in output:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield decode_json(line, _Status)


def _is_caught_up(status: _Status) -> bool:
    return bool(status["state"] == "following" and status["behind_bytes"] == 0)


class _Words:
    """Says how it goes: a line that moves on a terminal, else a line when there is news."""

    def __init__(self, output_format: Format) -> None:
        self._format = output_format
        self._moves = output_format is Format.TABLE and is_for_people(sys.stdout)
        self._said = ""
        self._quiet_seconds = 0
        self._last: _Status = {}

    def say(self, status: _Status) -> None:
        self._last = status
        if self._format is Format.JSONL:
            print_json(status)
            sys.stdout.flush()
        elif status["state"] == "stopped":
            return
        elif self._moves:
            sys.stdout.write(f"\r\x1b[K{_line(status)}")
            sys.stdout.flush()
        elif self._format in (Format.TABLE, Format.TEXT):
            self._quiet_seconds += 1
            news = f"{status['state']} {status['master']}"
            if news != self._said or self._quiet_seconds >= LINE_SECONDS:
                self._said, self._quiet_seconds = news, 0
                say(_line(status))

    def end(self) -> None:
        """Say how far it got."""
        if self._moves:
            sys.stdout.write("\n")
        if not self._last:
            return
        if self._format is Format.JSON:
            print_json(self._last)
        elif self._format is not Format.JSONL:
            end = self._last["log_end"]
            say(f"stopped; the copy has the log from {self._last['log_start']} to {end}")


def _line(status: _Status) -> str:
    name = f"{plain(status['broker'])} at " if status["broker"] else ""
    held = human_bytes(status["log_end"] - status["log_start"])
    if status["state"] != "following":
        return f"looking for {name}{status['master']}; {held} held"
    behind = status["behind_bytes"]
    missing = "" if behind is None else f", {human_bytes(behind)} behind"
    rate = human_bytes(status["bytes_per_second"])
    topics = f", {status['topics']} topics" if status["topics"] else ""
    return f"following {name}{status['master']}: {held} held{missing}, {rate}/s{topics}"
