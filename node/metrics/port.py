"""The port of metrics: /metrics, /livez, /readyz, /healthz?for=group. Nothing else, and only GET.

It is there from before the store is opened until the node ends, so that a node that recovers for
minutes is known to live. It speaks TLS where the other ports of the node do.

A scrape is collected in steps between which everybody else has a turn. There is one at a time: who
asks meanwhile, or within a second after, gets the same. An answer is sent whole, and how long a
client may take for it is bounded, as is the number of clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import trio

from node.figures.exposition import Exposition, Format, wanted_format
from node.metrics.health import Health, group_ready, live, ready
from store.machine.network import ConnectionLost
from tandem.http_port import JSON, ConnectionPlaces, HTTPConnection, HTTPLimits, NoPlaceError

if TYPE_CHECKING:
    import h11

    from node.figures.node_report import NodeReport
    from node.metrics.collection import Collection
    from store.machine.machine import Machine
    from store.machine.network import Listener, Stream
    from tandem.cluster_file.cluster_config import NodeConfig

_log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 16
"""Of more, one that has asked nothing is closed: strangers do not shut probes out."""

LIMITS: Final = HTTPLimits(head_bytes=8 * 1024, body_bytes=0, idle_seconds=90, request_seconds=10)
"""Prometheus keeps a connection from one scrape to the next: a minute, mostly."""

SAME_SECONDS: Final = 1.0
"""For so long a scrape is given to others who ask, too."""

TEXT: Final = "text/plain; charset=utf-8"


def _unreadable(_status: int, why: str) -> bytes:
    return why.encode()


class MetricsPort:
    """The port of one node."""

    def __init__(
        self, config: NodeConfig, machine: Machine, report: NodeReport, collection: Collection
    ) -> None:
        """Serve what is collected, and how `report` is, at the place of the cluster file."""
        self._place = config.metrics_place
        self._network = machine.network
        self._report = report
        self._collection = collection
        self._places = ConnectionPlaces(CONNECTIONS_MAX)
        self._collecting = trio.Lock()
        self._collected: dict[Format, tuple[float, bytes]] = {}
        self._exposition = Exposition(
            collection.bases,
            series_max=collection.settings.series_max,
            with_exporter_names=collection.settings.exporter_names,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Started once it listens, or at once if nothing is to be served.

        Raises:
            AddressInUseError: the port is taken.
        """
        if self._place is None:
            task_status.started()
            return
        listener = await self._network.listen(*self._place)
        _log.info("metrics are served at %s:%d", *self._place)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                await self._accept(listener, nursery)
        finally:
            with trio.move_on_after(1, shield=True):
                await listener.aclose()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(self._serve, await listener.accept())

    async def _serve(self, stream: Stream) -> None:
        # A probe that connects and ends is nothing to write a line about.
        try:
            with self._places.take() as place:
                http = HTTPConnection(stream, LIMITS, _unreadable, TEXT, place=place)
                await http.run(self._respond)
        except (ConnectionLost, NoPlaceError, trio.TooSlowError):
            return
        finally:
            stream.close_nowait()

    async def _respond(
        self, connection: HTTPConnection, request: h11.Request, _body: bytes
    ) -> None:
        try:
            status, body, content_type = await self._answer(request)
        except Exception:  # noqa: BLE001 - a scrape must not end a node
            _log.exception("a request for metrics failed: a bug")
            status, body, content_type = 500, b"The node has failed to answer: see its log.\n", TEXT
        await connection.send_reply(status, body, content_type)

    async def _answer(self, request: h11.Request) -> tuple[int, bytes, str]:
        """Return status, body and its type."""
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"Only GET and HEAD are served here.\n", TEXT
        try:
            target = urlsplit(request.target.decode("ascii", "replace"))
        except ValueError as error:
            return 400, f"not a URL: {error}\n".encode(), TEXT
        if target.path == "/metrics":
            accept = b",".join(value for name, value in request.headers if name == b"accept")
            format_ = wanted_format(accept.decode("ascii", "replace"))
            return 200, await self.collect(format_), format_.value
        if (health := self._health(target.path, target.query)) is not None:
            return 200 if health.ok else 503, msgspec.json.encode(health) + b"\n", JSON
        return 404, b"Served here: /metrics, /livez, /readyz, /healthz?for=group\n", TEXT

    def _health(self, path: str, query: str) -> Health | None:
        if path == "/livez":
            return live()
        if path == "/readyz":
            return ready(self._report)
        if path == "/healthz":
            asked = parse_qs(query).get("for", ["node"])[-1]
            return {"group": group_ready, "node": ready}.get(asked, _unknown)(self._report)
        return None

    async def collect(self, format_: Format) -> bytes:
        """Return all figures as text, those of the last second if there are such."""
        async with self._collecting:
            at, text = self._collected.get(format_, (-SAME_SECONDS, b""))
            if trio.current_time() - at >= SAME_SECONDS:
                parts = []
                for part in self._exposition.write(self._collection.figures(), format_):
                    parts.append(part)
                    await trio.lowlevel.checkpoint()
                text = b"".join(parts)
                self._collected[format_] = trio.current_time(), text
            return text


def _unknown(_report: NodeReport) -> Health:
    return Health(ok=False, why=["for= is node or group"])
