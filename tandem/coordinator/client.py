"""The one client of all coordinators: etcd v3 over its HTTP/JSON gateway.

Which calls are sent a second time, to the next endpoint: those that never left (nobody there), and
those that do no harm twice (read, keep-alive, revoke). A grant or a transaction whose answer is
missing is `CoordinatorUnavailableError`: it may have been done.

An endpoint that did not answer is asked last from then on, also if the caller's own time limit was
what ended the wait: a frozen one, or one that is cut off from the others, costs one call.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import httpcore
import trio

from tandem.cluster_file.choices import CoordinatorKind
from tandem.cluster_file.secret_file import SecretFileError, read_private
from tandem.coordinator import etcd_v3
from tandem.coordinator.interface import (
    Compare,
    CoordinatorSettingError,
    CoordinatorUnavailableError,
    Delete,
    Event,
    Lease,
    LeaseLostError,
    NoAnswer,
    Put,
    Snapshot,
    TransactionResult,
)
from tandem.coordinator.network_backend import NetworkBackend
from tandem.coordinator.tokens import USER
from tandem.coordinator.troubles import NotSentError, broken_in_words
from tandem.coordinator.watch import Lines, batches_of
from tandem.wire.secret_keys import Purpose, key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from tandem.cluster_file.coordinator_settings import CoordinatorSettings

Answer = TypeVar("Answer")

REQUEST_SECONDS_MAX: Final = 2.0
"""For one answer of one endpoint. Longer than an election among etcd's members, 1 to 2 s; shorter
than a lease, so that another endpoint can still be asked."""

CONNECT_SECONDS_MAX: Final = 1.0

IDLE_SECONDS_MAX: Final = 30.0
"""Idle connections are closed after this; the embedded coordinator keeps them ten times longer."""

CONNECTIONS_MAX: Final = 64
"""Far more than one node has calls at a time, so that no keep-alive waits for another call."""

HTTP_OK: Final = 200

_CONNECT_LIMIT: Final = {"timeout": {"connect": CONNECT_SECONDS_MAX}}

_KEEP_TCP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # A watch can be silent for hours: this is how it learns that nobody is there any more.
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class EtcdClient:
    """Implements `tandem.coordinator.interface.Coordinator`. Close it with `aclose`.

    `network_backend` is where connections come from; tests put faults there.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str = "",
        password: str = "",
        ssl_context: ssl.SSLContext | None = None,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        network_backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        scheme = "https" if ssl_context else "http"
        self._endpoints = [endpoint_url(endpoint, scheme) for endpoint in endpoints]
        if not self._endpoints:
            text = "the coordinator has no endpoints: name at least one"
            raise CoordinatorSettingError(text, "endpoints")
        self._first = 0
        self._user = user
        self._password = password
        self._token = ""
        self._request_seconds_max = request_seconds_max
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS_MAX,
            network_backend=NetworkBackend() if network_backend is None else network_backend,
            socket_options=_KEEP_TCP_ALIVE,
        )

    async def aclose(self) -> None:
        """Close all connections. Calls that are under way must have been cancelled."""
        await self._pool.aclose()

    async def grant(self, ttl_seconds: int) -> Lease:
        """Return a new lease."""
        body = await self._call(etcd_v3.GRANT, etcd_v3.grant_request(ttl_seconds))
        return etcd_v3.decode_grant(body)

    async def keep_alive(self, lease_id: int) -> int:
        """Renew; return the time to live in seconds."""
        request = etcd_v3.lease_request(lease_id)
        body = await self._call(etcd_v3.KEEP_ALIVE, request, repeatable=True)
        return etcd_v3.decode_keep_alive(body)

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; harmless if it is gone."""
        request = etcd_v3.lease_request(lease_id)
        try:
            await self._call(etcd_v3.REVOKE, request, repeatable=True)
        except LeaseLostError:
            return

    async def read(self, prefix: str) -> Snapshot:
        """Return all keys under `prefix`. Linearizable."""
        request = etcd_v3.range_request(prefix)
        return etcd_v3.decode_range(await self._call(etcd_v3.RANGE, request, repeatable=True))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Do all operations if all compares hold, else nothing."""
        request = etcd_v3.transaction_request(compares, operations)
        return etcd_v3.decode_transaction(await self._call(etcd_v3.TRANSACTION, request))

    @asynccontextmanager
    async def watch(
        self, prefix: str, start_revision: int
    ) -> AsyncIterator[AsyncIterator[tuple[Event, ...]]]:
        """Follow all changes under `prefix` from `start_revision` on.

        Waiting for the next events may be cancelled without losing any.
        """
        request = etcd_v3.watch_request(prefix, start_revision)
        async with AsyncExitStack() as connection:
            lines = await self._on_some_endpoint(
                lambda endpoint, token: self._open_watch(connection, endpoint, request, token),
                repeatable=True,
            )
            async with batches_of(lines) as batches:
                yield batches

    # --- requests ------------------------------------------------------------------------------

    async def _call(self, path: str, body: bytes, *, repeatable: bool = False) -> bytes:
        return await self._on_some_endpoint(
            lambda endpoint, token: self._post(endpoint, path, body, token), repeatable=repeatable
        )

    async def _on_some_endpoint(
        self, send: Callable[[str, str], Awaitable[Answer]], *, repeatable: bool
    ) -> Answer:
        """Ask endpoint after endpoint, as far as the request may be sent again."""
        troubles: list[CoordinatorUnavailableError] = []
        for endpoint in self._endpoints[self._first :] + self._endpoints[: self._first]:
            answered = True
            try:
                return await self._authenticated(endpoint, send)
            except CoordinatorUnavailableError as error:
                answered = False
                if not repeatable and not isinstance(error, NotSentError):
                    raise
                troubles.append(error)
            except trio.Cancelled:
                # Most waits for a frozen one end like this: the caller has given up.
                answered = False
                raise
            finally:
                if not answered:
                    self._avoid(endpoint)
        raise CoordinatorUnavailableError("; ".join(map(str, troubles)), troubles[-1].cause)

    def _avoid(self, endpoint: str) -> None:
        if self._endpoints[self._first] == endpoint:
            self._first = (self._first + 1) % len(self._endpoints)

    async def _authenticated(
        self, endpoint: str, send: Callable[[str, str], Awaitable[Answer]]
    ) -> Answer:
        """Send with a token if there is a user; renew one that is not good any more."""
        if not self._user:
            return await send(endpoint, "")
        if self._token:
            try:
                return await send(endpoint, self._token)
            except etcd_v3.InvalidTokenError:
                self._token = ""
        request = etcd_v3.authenticate_request(self._user, self._password)
        try:
            reply = await self._post(endpoint, etcd_v3.AUTHENTICATE, request, "")
        except CoordinatorUnavailableError as error:
            # Whatever became of that: what the caller asks for was not sent.
            raise NotSentError(str(error), error.cause) from error
        self._token = etcd_v3.decode_token(reply)
        return await send(endpoint, self._token)

    async def _post(self, endpoint: str, path: str, body: bytes, token: str) -> bytes:
        with self._unanswered_in_words(endpoint):
            response = await self._pool.request(
                "POST",
                endpoint + path,
                headers=_headers(body, token),
                content=_Body(body),
                extensions=_CONNECT_LIMIT,
            )
        if response.status != HTTP_OK:
            etcd_v3.raise_error(response.status, response.content)
        return response.content

    async def _open_watch(
        self, connection: AsyncExitStack, endpoint: str, body: bytes, token: str
    ) -> Lines:
        """Begin a watch; return once it was confirmed."""
        with self._unanswered_in_words(endpoint):
            response = await connection.enter_async_context(
                self._pool.stream(
                    "POST",
                    endpoint + etcd_v3.WATCH,
                    headers=_headers(body, token),
                    content=_Body(body),
                    extensions=_CONNECT_LIMIT,
                )
            )
            if response.status != HTTP_OK:
                etcd_v3.raise_error(response.status, await response.aread())
            lines = Lines(endpoint, response.aiter_stream())
            connection.push_async_callback(lines.aclose)
            etcd_v3.decode_watch(await lines.next())
        return lines

    @contextmanager
    def _unanswered_in_words(self, endpoint: str) -> Iterator[None]:
        """Give the block its time, and name who did not answer it."""
        try:
            with trio.fail_after(self._request_seconds_max), broken_in_words(endpoint):
                yield
        except trio.TooSlowError:
            raise CoordinatorUnavailableError(
                f"{endpoint} did not answer in {self._request_seconds_max:g} s", NoAnswer.LATE
            ) from None


class _Body:
    """The body of a request, in one piece.

    httpcore's own is a generator, which an interrupted request leaves to the garbage collector.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._is_sent = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._is_sent = False
        return self

    async def __anext__(self) -> bytes:
        if self._is_sent:
            raise StopAsyncIteration
        self._is_sent = True
        return self._data


def connect(
    settings: CoordinatorSettings,
    *,
    secret: str,
    reach: str = "",
    network_backend: httpcore.AsyncNetworkBackend | None = None,
) -> EtcdClient:
    """Return a client of the coordinator of a cluster file. Connects when it is first used.

    `secret`: of the cluster; the embedded coordinator asks for what is derived from it.
    `reach`: the address to dial instead of those of the settings, at the same ports (NAT, proxies).

    Raises:
        CoordinatorRefusedError: A file that the settings name cannot be read, or is not usable.
    """
    if settings.kind is CoordinatorKind.EMBEDDED:
        endpoints = [f"{reach or settings.address}:{settings.port}"]
        user, password = USER, embedded_password(secret)
    else:
        endpoints = [_redirected(endpoint, reach) for endpoint in settings.endpoints]
        user = settings.user
        password = _password(settings.password_file) if user else ""
    return EtcdClient(
        endpoints,
        user=user,
        password=password,
        ssl_context=_ssl_context(settings),
        network_backend=network_backend,
    )


def embedded_password(secret: str) -> str:
    """What the embedded coordinator of a cluster with this secret asks for."""
    return key_of(secret, Purpose.COORDINATOR).hex()


def _redirected(endpoint: str, reach: str) -> str:
    if not reach:
        return endpoint
    url = urlsplit(endpoint_url(endpoint, "http"))
    scheme = f"{url.scheme}://" if "://" in endpoint else ""
    return f"{scheme}{reach}:{url.port}"


def endpoint_url(endpoint: str, scheme: str) -> str:
    """The URL of `host:port`, or of a URL without a path.

    Raises:
        CoordinatorRefusedError: It is neither.
    """
    text = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    try:
        url = urlsplit(text)
        if (
            url.scheme in ("http", "https")
            and url.hostname
            and url.port
            and not url.path.strip("/")
        ):
            return text.rstrip("/")
    except ValueError:
        pass
    text = f"{endpoint!r} is not an endpoint of a coordinator; write host:port or https://host:port"
    raise CoordinatorSettingError(text, "endpoints")


def _password(file: str) -> str:
    try:
        return read_private(Path(file), repr(file)).rstrip("\r\n")
    except SecretFileError as error:
        text = f"the coordinator's password_file {error}"
        raise CoordinatorSettingError(text, "password_file") from error


def _check_key(file: str) -> None:
    try:
        read_private(Path(file), repr(file))
    except SecretFileError as error:
        raise CoordinatorSettingError(f"the coordinator's key_file {error}", "key_file") from error


def _ssl_context(settings: CoordinatorSettings) -> ssl.SSLContext | None:
    secure = any(endpoint.startswith("https://") for endpoint in settings.endpoints)
    if not (settings.ca_file or settings.cert_file or secure):
        return None
    if settings.key_file:
        _check_key(settings.key_file)
    setting, file = "ca_file", settings.ca_file
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file:
            setting, file = "cert_file", settings.cert_file
            context.load_cert_chain(settings.cert_file, settings.key_file or None)
    except (OSError, ssl.SSLError) as error:
        with_key = f" with key_file {settings.key_file!r}" if setting == "cert_file" else ""
        text = f"the coordinator's {setting} {file!r}{with_key} cannot be used: {error}"
        raise CoordinatorSettingError(text, setting) from error
    return context


def _headers(body: bytes, token: str) -> dict[bytes | str, bytes | str]:
    headers: dict[bytes | str, bytes | str] = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    return headers | {"Authorization": token} if token else headers
