"""What all commands share: where words go, how numbers look, how errors end a command.

Names, remarks, reasons, keys and bodies come from clusters and stores of others: what is printed of
them goes through `shown`, `say` or `print_json`, so that nothing in them moves the terminal.
"""

import errno
import math
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, TypeVar, TypeVarTuple

import msgspec
import typer

from tandem.plain_text import one_line, plain, plain_json
from tandem.text_table import Line, bare, rich_text, words_lines

if TYPE_CHECKING:
    from rich.console import Console

    from tandem.client.cluster_access import ClusterAccess
    from tandem.cluster.spec import ClusterSpec
    from tandem.tls_files import TLSFiles

ReturnT = TypeVar("ReturnT")
ArgumentTs = TypeVarTuple("ArgumentTs")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The cluster file; ./cluster.yaml if there is one, else the example.",
        show_default=False,
    ),
]

NameServersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--name-server",
        "-n",
        metavar="HOST:PORT",
        help="Ask these instead of the nodes of the cluster file. Repeat it, or put `;` between.",
        show_default=False,
    ),
]

DONE: Final = 0
FAILED: Final = 1
"""Refused, failed, or a check has found something."""

WRONG_USAGE: Final = 2
"""The command line or the cluster file is wrong. Nothing was done."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


class CommandError(Exception):
    """A command cannot do what was asked for; the text says why and what to do."""

    def __init__(self, text: str, exit_status: int = FAILED) -> None:
        super().__init__(text)
        self.exit_status = exit_status


def expected_errors() -> tuple[type[Exception], ...]:
    """The errors whose text is for the user. Imported here, where one has already happened."""
    from tandem.client.errors import ClientError
    from tandem.cluster_file.errors import ClusterError
    from tandem.console.errors import ConsoleError
    from tandem.drill.errors import DrillError
    from tandem.tls_files import TLSFileError

    return (ClusterError, ClientError, DrillError, CommandError, ConsoleError, TLSFileError)


def exit_status(error: Exception) -> int:
    """2 if what the user wrote is wrong, 1 for the rest."""
    from tandem.cluster_file.errors import ClusterConfigError, UnknownNodeError
    from tandem.drill.errors import BadOptionsError
    from tandem.tls_files import TLSFileError

    if isinstance(error, CommandError):
        return error.exit_status
    usage = (ClusterConfigError, UnknownNodeError, BadOptionsError, TLSFileError)
    is_usage = isinstance(error, usage)
    return WRONG_USAGE if is_usage else FAILED


def say_error(text: str) -> None:
    """Write an error to standard error; the lines of a long one stay together."""
    words = "\n".join(map(one_line, text.split("\n")))
    has_colours = is_for_people(sys.stderr) and not os.environ.get("NO_COLOR")
    line = f"error: {words}"
    typer.echo(typer.style(line, fg=typer.colors.RED) if has_colours else line, err=True)


def words_of(error: Exception) -> str:
    """What to say of an error that was expected. The remark of a broker makes one line of it."""
    from tandem.client.errors import ClientError

    if not isinstance(error, ClientError):
        return str(error)
    return "\n".join([plain(str(error)), *hints(error)])


def hints(error: Exception) -> list[str]:
    """What to do where nobody answers at all; nothing for other errors."""
    from tandem.client.errors import RouteNotFoundError

    if isinstance(error, RouteNotFoundError) and error.reason.startswith("no name server answers"):
        return [
            "is the cluster up? see `tandem cluster status`; --config and --name-server say which"
            " one is asked"
        ]
    return []


def words_of_system(error: OSError) -> str:
    """What to say where the system refused something: what, why, and what may help."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    reason = error.strerror or str(error)
    remedy = _SYSTEM_REMEDIES.get(error.errno or 0, "")
    return "".join((f"{', '.join(map(str, names))}: " if names else "", reason, remedy))


_SYSTEM_REMEDIES: Final = {
    errno.EACCES: "; run as a user who may, or name another place",
    errno.EPERM: "; run as a user who may, or name another place",
    errno.EROFS: "; name a place that can be written",
    errno.EEXIST: "; it is something else already: move it away, or name another place",
    errno.ENOSPC: "; free some room on that disk, or name another place",
    errno.EDQUOT: "; free some room, or name another place",
    errno.EMFILE: "; allow more open files, with `ulimit -n`",
    errno.ENFILE: "; end other programs: the machine has no more open files",
    errno.ENOMEM: "; end other programs: the machine has no more memory",
    errno.ENAMETOOLONG: "; name a shorter path",
    errno.ENOENT: "; look whether the path is right",
    errno.ENOTDIR: "; a part of the path is a file: name another place",
    errno.EISDIR: "; that is a directory: name a file",
    errno.ELOOP: "; look at the symbolic links of the path",
}


def finite(seconds: float | None) -> float | None:
    """Return the value of an option, which is a number that can be waited for.

    Raises:
        typer.BadParameter: It is `nan` or `inf`.
    """
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number to count with")
    return seconds


def shown(text: str) -> str:
    """Return text of foreign origin for a table or `print` of a console, with markup."""
    from rich.markup import escape

    return escape(plain(text))


def say(text: str) -> None:
    """Write text of ours to standard output, with foreign words in it; its lines stay lines.

    A terminal gets long ones folded between words.
    """
    width = terminal_width()
    for line in text.split("\n"):
        print_lines(words_lines(line, width, hang=0))


def print_json(value: object) -> None:
    """Write a value to standard output as one line of JSON."""
    sys.stdout.buffer.write(json_bytes(value) + b"\n")


def json_bytes(value: object) -> bytes:
    r"""Return JSON that no terminal acts on.

    Names of files need not be UTF-8, and JSON has to be: what is not is spelled out, `\udcff`, as
    in text.
    """
    try:
        return plain_json(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return plain_json(msgspec.json.encode(_spelled_out(msgspec.to_builtins(value))))


def _spelled_out(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled_out(key): _spelled_out(each) for key, each in value.items()}
    return [*map(_spelled_out, value)] if isinstance(value, list | tuple) else value


def is_for_people(stream: TextIO | None = None) -> bool:
    """Whether a stream is a terminal that can do more than take one line after the other.

    Standard output, if no stream is named.
    """
    is_terminal = (stream or sys.stdout).isatty()
    return is_terminal and os.environ.get("TERM", "") not in ("dumb", "unknown")


def stdout() -> "Console":
    """Standard output for people: colours on a terminal. What it prints fits already."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def terminal_width() -> int | None:
    """Return how many columns lines of standard output may have; None if that does not matter."""
    return shutil.get_terminal_size().columns if is_for_people() else None


def print_lines(lines: Sequence[Line]) -> None:
    """Write lines to standard output, with their styles if it is a terminal."""
    if not lines:
        return
    if is_for_people():
        stdout().print(rich_text(lines))
    else:
        typer.echo("\n".join(map(bare, lines)))


def print_words(text: str, style: str = "", *, indent: int = 0) -> None:
    """Write a sentence for people, with foreign words in it; a terminal gets it between words."""
    print_lines(words_lines(text, terminal_width(), indent=indent, style=style))


def stderr() -> "Console":
    """Standard error for people: progress, and words that are not the result."""
    from rich.console import Console

    return Console(highlight=False, stderr=True)


def human_bytes(count: int) -> str:
    """A size for people: "0 B", "312.0 MiB"."""
    if abs(count) < 1024:
        return f"{count} B"
    size = float(count)
    for unit in _UNITS:
        size /= 1024
        if abs(size) < 1024 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def access_of(
    name_servers: list[str] | None, config: Path | None, *, with_secret: bool = False
) -> "ClusterAccess":
    """Whom to ask, and how: what the user named, else every node of the cluster file.

    With its secret, if that is wanted and this user may read it; none is enough for all but orders.

    Raises:
        ClusterConfigError: The file is wrong or missing.
        typer.BadParameter: The user named what is no address.
    """
    from tandem.client.cluster_access import ClusterAccess
    from tandem.cluster.spec import default_config, read_spec

    # RocketMQ's tools take one text with `;` between the addresses.
    name_servers = [each for text in name_servers or () for each in text.split(";")] or None
    for address in name_servers or ():
        _check_address(address)
    if name_servers and config is None:
        access_key, secret_key = named_keys()
        return ClusterAccess(
            name_servers,
            access_key,
            secret_key,
            signatures=_named_signatures(),
            tls=_named_tls(),
        )
    spec = read_spec(config or default_config())
    return access_of_spec(spec, name_servers, with_secret=with_secret)


def access_of_spec(
    spec: "ClusterSpec", name_servers: list[str] | None = None, *, with_secret: bool = True
) -> "ClusterAccess":
    """The same, of a cluster file that was read.

    Requests are signed where the cluster asks for users: by the one whom the environment names,
    else as the operator.
    """
    from tandem.client.cluster_access import ClusterAccess
    from tandem.cluster_file.secret_file import SecretFileError

    access_key, secret_key = named_keys()
    secret = ""
    if with_secret or (spec.asks_for_users and not access_key):
        with suppress(SecretFileError):
            secret = spec.read_secret()
    return ClusterAccess(
        name_servers or spec.name_servers,
        access_key,
        secret_key,
        secret=secret,
        as_operator=spec.asks_for_users,
        signatures=_named_signatures(),
        tls=spec.tls,
    )


def named_keys() -> tuple[str, str]:
    """Return the access key and the secret key that the environment names; "" if it does not.

    Raises:
        typer.BadParameter: It names one without the other.
    """
    from tandem.client.credentials import Credentials

    keys = os.environ.get("TANDEM_ACCESS_KEY", ""), os.environ.get("TANDEM_SECRET_KEY", "")
    try:
        Credentials.of(*keys)
    except ValueError as error:
        raise typer.BadParameter(
            f"TANDEM_ACCESS_KEY and TANDEM_SECRET_KEY of the environment: {error}"
        ) from error
    return keys


def _named_signatures() -> str:
    """Return which signatures may be used in clear, as the environment says."""
    from tandem.wire.frame_seal import Signatures

    named = os.environ.get("TANDEM_SIGNATURES", Signatures.REPLAY_PROOF.value)
    if named not in [each.value for each in Signatures]:
        raise typer.BadParameter(
            f"TANDEM_SIGNATURES of the environment is {named!r}; it is replay_proof or any"
        )
    return named


def _named_tls() -> "TLSFiles | None":
    """The files that the environment names, for a cluster whose file is not here."""
    from tandem.tls_files import TLSFiles

    ca_file = os.environ.get("TANDEM_TLS_CA_FILE", "")
    if not ca_file:
        return None
    try:
        return TLSFiles(
            ca_file,
            os.environ.get("TANDEM_TLS_CERTIFICATE_FILE", ""),
            os.environ.get("TANDEM_TLS_KEY_FILE", ""),
        )
    except ValueError as error:
        raise CommandError(f"TANDEM_TLS_…: {error}", WRONG_USAGE) from error


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
    if not host or not is_port:
        raise typer.BadParameter(
            f"{one_line(address, 100)!r} is no address; give HOST:PORT, such as 127.0.0.1:9876",
            param_hint="--name-server",
        )


def run(function: Callable[[*ArgumentTs], Awaitable[ReturnT]], *arguments: *ArgumentTs) -> ReturnT:
    """`trio.run`, with the one error that matters in place of the groups around it.

    Raises:
        KeyboardInterrupt: Ctrl-C, even if other errors came with it.
        BrokenPipeError: Nobody reads our output any more.
        UnicodeEncodeError: A word of the command line is no UTF-8.
    """
    import trio

    try:
        return trio.run(function, *arguments)
    except BaseExceptionGroup as group:
        errors = _leaves(group)
        kinds: tuple[tuple[type[BaseException], ...], ...] = (
            (KeyboardInterrupt,),
            (BrokenPipeError,),
            expected_errors(),
            (typer.TyperException, typer.Exit),
            (OSError, UnicodeEncodeError),
        )
        found = (error for kind in kinds for error in errors if isinstance(error, kind))
        chosen = next(found, None)
        if chosen is None:
            raise
        raise chosen from group


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in _leaves(member)]
    return [error]
