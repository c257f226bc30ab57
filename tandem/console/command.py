"""Starts the console: whether it may be reached from where it is to be, and all that it needs."""

import errno
import ipaddress
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem.client import Admin
from tandem.client.async_shell import StreamOpener
from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import BrokerError, RouteCause, RouteNotFoundError
from tandem.cluster.spec import ClusterSpec, spec_of
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.console.accounts import NOT_ASKED, Accounts, Surroundings
from tandem.console.asking import Console, wall_ms
from tandem.console.cluster_errors import is_refusal
from tandem.console.errors import ConsoleError
from tandem.console.incoming import Places
from tandem.console.page import read_page
from tandem.console.server import Server
from tandem.console.target import Target, anonymous
from tandem.tls_files import FreshContext, TLSFiles
from tandem.views.cluster_look import coordinator_of
from tandem.views.fenced_group import RecordStore

SWEEP_SECONDS: Final = 60.0
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says.

    Attributes:
        access: Where the cluster is. Its keys and its secret are not used.
        config: The cluster file, if it is here.
        host, port: Where to listen; port 0 is any free one.
        host_names: By which names browsers reach it, beside its address.
        certificate_file, key_file: With them it speaks HTTPS.
        reports: Where reports of drills are.
    """

    access: ClusterAccess
    config: ClusterConfig | None
    host: str
    port: int
    host_names: list[str]
    certificate_file: str
    key_file: str
    reports: Path


async def run_console(
    options: ConsoleOptions,
    say: Callable[[str], None],
    open_stream: StreamOpener | None = None,
) -> None:
    """Serve until cancelled. `say` is for where it is, and how one logs in.

    Raises:
        ConsoleError: it must not, or cannot be reached there.
        ClientError: no name server answers, and no cluster file says what cluster it is.
        TLSFileError: a file of TLS cannot be used.
    """
    host = _host(options)
    names = _names(options, host)
    tls = _tls(options)
    spec = None if options.config is None else spec_of(options.config)
    has_users = await _has_users(options.access, spec, open_stream)
    if not host.is_loopback and not (tls and has_users):
        raise ConsoleError(_why_not_there(options, has_tls=tls is not None))
    access = anonymous(options.access)
    target = Target(access, has_users, spec, options.config)
    listeners = await _listen(options)
    port: int = listeners[0].socket.getsockname()[1]
    places = Places.of(names, port, is_secure=tls is not None)
    url = f"{'https' if tls else 'http'}://{names[0]}:{port}/"
    async with _coordinator(spec) as coordinator, trio.open_nursery() as nursery:
        around = Surroundings(target, coordinator, wall_ms, open_stream)
        console = Console(
            Accounts(around, nursery),
            reports=options.reports,
            cookie=f"{'__Host-' if tls else ''}tandem-{port}",
            is_secure=tls is not None,
            logged_in=lambda client: _say_login(console, url, client, say),
            note=say,
        )
        say(f"console of {', '.join(access.addresses)}: {url}{_fragment(console)}")
        say("one logs in with access key and secret" if has_users else "good for one login")
        nursery.start_soon(_sweep, console)
        await Server(console, read_page(), places, tls).serve(listeners)


def _say_login(console: Console, url: str, client: str, say: Callable[[str], None]) -> None:
    if console.token is not None:
        say(f"logged in from {client}; for another login: {url}{_fragment(console)}")


def _fragment(console: Console) -> str:
    """What a browser keeps for itself: it is in no request and no log."""
    return "" if console.token is None else f"#token={console.token.text}"


async def _sweep(console: Console) -> None:
    """End idle sessions also while nobody asks anything."""
    while True:
        await trio.sleep(SWEEP_SECONDS)
        console.sessions.sweep()


def _host(options: ConsoleOptions) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    text = "127.0.0.1" if options.host == "localhost" else options.host.strip("[]")
    try:
        host = ipaddress.ip_address(text)
    except ValueError:
        raise ConsoleError(
            f"{options.host!r} is no address; --listen takes one of this machine with a port,"
            " such as 127.0.0.1:9880, and --host-name the name that browsers use"
        ) from None
    if host.is_unspecified and not options.host_names:
        raise ConsoleError(
            f"browsers do not call {options.host}: say with --host-name by which name they reach"
            " this machine"
        )
    return host


def _names(
    options: ConsoleOptions, host: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> list[str]:
    """Return the names of the host, the one to print first.

    Raises:
        ConsoleError: what is given is none.
    """
    for name in options.host_names:
        if not _HOST_NAME.fullmatch(name):
            raise ConsoleError(
                f"{name!r} is no name of a host; --host-name takes what stands between http:// and"
                " the port, such as ops.example"
            )
    own = f"[{host}]" if host.version == 6 else str(host)
    names = [*options.host_names, own, *(LOOPBACK_NAMES if host.is_loopback else ())]
    return list(dict.fromkeys(names))


def _tls(options: ConsoleOptions) -> FreshContext | None:
    certificate, key = options.certificate_file, options.key_file
    if bool(certificate) != bool(key):
        raise ConsoleError("--tls-cert needs --tls-key, and that one --tls-cert")
    if not certificate:
        return None
    # Nobody's certificate is asked for, so what is trusted does not matter.
    files = TLSFiles(certificate, certificate, key)
    return FreshContext(files, files.server_context)


async def _has_users(
    access: ClusterAccess, spec: ClusterSpec | None, open_stream: StreamOpener | None
) -> bool:
    """Whether the nodes ask who sends a request; if none answers, whether the file says so."""
    async with Admin(anonymous(access), open_stream=open_stream) as admin:
        try:
            await admin.cluster_info()
        except BrokerError as error:
            if is_refusal(error):
                return True
            raise
        except RouteNotFoundError as error:
            if spec is None or error.cause is not RouteCause.NO_NAME_SERVER:
                raise
    return spec is not None and spec.asks_for_users


def _why_not_there(options: ConsoleOptions, *, has_tls: bool) -> str:
    missing = [] if has_tls else ["TLS (--tls-cert and --tls-key)"]
    missing.append("a cluster with users (security.clients)")
    return (
        f"a console at {options.host} can be reached from other machines: that takes"
        f" {' and '.join(missing)}. At 127.0.0.1 it takes neither"
    )


async def _listen(options: ConsoleOptions) -> list[trio.SocketListener]:
    host = options.host.strip("[]")
    try:
        return await trio.open_tcp_listeners(options.port, host=host)
    except OSError as error:
        inner = _cause(error)
        if inner == errno.EADDRINUSE:
            raise ConsoleError(
                f"port {options.port} of {host} is in use, perhaps by another console: end that"
                " program, or name another port with --listen"
            ) from error
        reason = error.strerror or str(error)
        raise ConsoleError(
            f"{host}:{options.port} cannot be listened on: {reason}; name another place with"
            " --listen"
        ) from error


def _cause(error: BaseException) -> int | None:
    """Return the number of a system's error; trio wraps it if all addresses failed."""
    while isinstance(error, OSError) and error.errno is None and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return _cause(error.exceptions[0])
    return error.errno if isinstance(error, OSError) else None


@asynccontextmanager
async def _coordinator(spec: ClusterSpec | None) -> AsyncIterator[RecordStore | str]:
    if spec is None:
        yield NOT_ASKED
        return
    async with coordinator_of(spec) as coordinator:
        yield coordinator
