"""A collector of OpenTelemetry, as an export sees it: takes a request by HTTP, or says why not.

Each request has a connection of its own, for there is one a minute. How long it may take, and how
much of an answer is read, is bounded. Redirects are not followed, and no proxy is asked: figures
and tokens go to the endpoint of the cluster file and nowhere else.

Source: OpenTelemetry Protocol 1.x, OTLP/HTTP.
"""

from __future__ import annotations

import enum
import os
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from node.errors import ConfigError
from node.metrics.otlp_headers import Header, HeadersError, read_headers
from tandem.cluster_file.secret_file import SecretFileError
from tandem.cluster_file.settings import MetricsSettings

REQUEST_SECONDS_MAX: Final = 10.0
"""For one export. Source: OTEL_EXPORTER_OTLP_TIMEOUT."""

ANSWER_BYTES_MAX: Final = 64 * 1024
METRICS_PATH: Final = "/v1/metrics"

_HTTP_OK: Final = 200
_OWN: Final[list[Header]] = [
    (b"Content-Type", b"application/x-protobuf"),
    (b"Content-Encoding", b"gzip"),
    (b"User-Agent", b"tandem-mq"),
    (b"Connection", b"close"),
]
_PORTS: Final = {"http": 80, "https": 443}
_RECEIVE_BYTES_MAX: Final = 16 * 1024


class NotTaken(enum.Enum):
    """Why an export was not taken; the value is the label of its count."""

    UNREACHABLE = "unreachable"
    """Nobody answered, or not in time."""
    REFUSED = "refused"
    """The answer is an error."""
    PARTLY = "partly"
    """Some series were left out by the collector."""
    NOT_SENT = "not_sent"
    """The file of headers cannot be used."""


class NotTakenError(Exception):
    """A collector has not got an export. `why` is the kind of reason; the text says more."""

    def __init__(self, text: str, why: NotTaken) -> None:
        super().__init__(text)
        self.why = why


class OTLPCollector:
    """Sends requests to one endpoint.

    Attributes:
        endpoint: Its URL, which has no secret in it.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers_file: Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Connects when something is sent.

        Raises:
            SecretFileError, HeadersError: The file cannot be used.
        """
        url = urlsplit(endpoint)
        self._url = url if url.path.strip("/") else url._replace(path=METRICS_PATH)
        self.endpoint = self._url.geturl()
        self._headers_file = headers_file
        self._ssl_context = ssl_context
        self._headers()

    def _headers(self) -> list[Header]:
        return read_headers(self._headers_file) if self._headers_file is not None else []

    async def send(self, body: bytes) -> bytes:
        """Send a request, compressed by gzip; return the body of the answer.

        Raises:
            NotTakenError: The collector has not taken it, or nobody knows.
        """
        try:
            headers = [
                (b"Host", self._url.netloc.encode()),
                *_OWN,
                (b"Content-Length", str(len(body)).encode()),
                *self._headers(),
            ]
        except (SecretFileError, HeadersError) as error:
            raise NotTakenError(str(error), NotTaken.NOT_SENT) from error
        try:
            with trio.fail_after(REQUEST_SECONDS_MAX):
                status, answer = await self._post(headers, body)
        except trio.TooSlowError:
            text = f"no answer in {REQUEST_SECONDS_MAX:g} s"
            raise NotTakenError(text, NotTaken.UNREACHABLE) from None
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            raise NotTakenError(_words(error), NotTaken.UNREACHABLE) from error
        if status != _HTTP_OK:
            raise NotTakenError(f"it answers with HTTP status {status}", NotTaken.REFUSED)
        return answer

    async def _post(self, headers: list[Header], body: bytes) -> tuple[int, bytes]:
        url, http = self._url, h11.Connection(h11.CLIENT)
        request = h11.Request(method="POST", target=url.path, headers=headers)
        data = [
            http.send(event) or b"" for event in (request, h11.Data(data=body), h11.EndOfMessage())
        ]
        async with await self._connect() as stream:
            await stream.send_all(b"".join(data))
            status, answer = 0, bytearray()
            while len(answer) <= ANSWER_BYTES_MAX:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(bytes(await stream.receive_some(_RECEIVE_BYTES_MAX)))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    answer += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
            return status, bytes(answer[:ANSWER_BYTES_MAX])

    async def _connect(self) -> trio.abc.Stream:
        host = self._url.hostname or ""
        tcp = await trio.open_tcp_stream(host, self._url.port or _PORTS[self._url.scheme])
        if self._ssl_context is None:
            return tcp
        return trio.SSLStream(tcp, self._ssl_context, server_hostname=host, https_compatible=True)


def collector_of(settings: MetricsSettings, directory: Path) -> OTLPCollector:
    """Return the collector of a cluster file; relative paths count from `directory`.

    Raises:
        ConfigError: A file that the settings name cannot be used.
    """
    assert settings.otlp_endpoint is not None
    context = None
    if urlsplit(settings.otlp_endpoint).scheme == "https":
        ca_file = settings.otlp_ca_file and str(directory / settings.otlp_ca_file)
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ssl.SSLError) as error:
            text = f"metrics.otlp_ca_file {ca_file}: cannot be used: {error}; give one in PEM"
            raise ConfigError([text], setting="metrics.otlp_ca_file") from error
    headers_file = settings.otlp_headers_file and directory / settings.otlp_headers_file
    try:
        return OTLPCollector(
            settings.otlp_endpoint, headers_file=headers_file or None, ssl_context=context
        )
    except (SecretFileError, HeadersError) as error:
        text = f"metrics.otlp_headers_file {error}"
        raise ConfigError([text], setting="metrics.otlp_headers_file") from error


def _words(error: BaseException) -> str:
    """What the innermost cause says; those around it say that there was one."""
    words = "the connection broke"
    cause: BaseException | None = error
    while cause is not None:
        words = str(cause) or words
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno:
            words = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        if isinstance(cause, ssl.SSLCertVerificationError):
            words = f"certificate verify failed: {cause.verify_message}"
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]  # one for each address of a name
        else:
            cause = cause.__cause__ or cause.__context__
    return words
