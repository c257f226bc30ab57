"""A collector of OpenTelemetry that tests have: takes exports by HTTP, and decodes them."""

from __future__ import annotations

import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from tandem.http_port import HTTPConnection, HTTPLimits

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    import h11

LIMITS = HTTPLimits(body_bytes=1 << 26)


class Series:
    """The points of one export, by name and labels."""

    def __init__(self, body: bytes) -> None:
        """`body`: of an export, decompressed."""
        self.request = ExportMetricsServiceRequest.FromString(body)
        self.kinds: dict[str, str] = {}
        self.units: dict[str, str] = {}
        self.points: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
        self.resource: dict[str, str] = {}
        for whole in self.request.resource_metrics:
            self.resource = pairs(whole.resource.attributes)
            for scope in whole.scope_metrics:
                for metric in scope.metrics:
                    self._add(metric)

    def _add(self, metric: Any) -> None:  # noqa: ANN401 - protobuf makes its classes at run time
        kind = metric.WhichOneof("data")
        self.kinds[metric.name], self.units[metric.name] = kind, metric.unit
        for point in getattr(metric, kind).data_points:
            key = metric.name, frozenset(pairs(point.attributes).items())
            assert key not in self.points, key
            self.points[key] = point

    def values(self, name: str, **labels: str) -> list[float]:
        """The numbers of a name whose labels have these among them."""
        return [
            getattr(point, point.WhichOneof("value"))
            for (own, found), point in self.points.items()
            if own == name and labels.items() <= dict(found).items()
        ]


def pairs(attributes: Any) -> dict[str, str]:  # noqa: ANN401
    """Attributes of a protobuf message."""
    return {each.key: each.value.string_value for each in attributes}


class HTTPCollector:
    """What came, and what is answered.

    Attributes:
        seen: Target and headers of each request.
        exports: Those that could be decoded.
        status: The status that is answered.
        rejects: How many points are said to be left out.
        body: The answer, if it is not a collector's.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.exports: list[Series] = []
        self.status = 200
        self.rejects = 0
        self.body: bytes | None = None
        self._news = trio.Event()

    async def next(self, count: int = 1) -> Series:
        """Wait for more exports; return the last."""
        wanted = len(self.seen) + count
        while len(self.seen) < wanted:
            await self._news.wait()
        return self.exports[-1]

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one client."""
        await HTTPConnection(stream, LIMITS, str.encode).run(self._respond)

    async def _respond(self, connection: HTTPConnection, request: h11.Request, body: bytes) -> None:
        headers = {name.decode(): value.decode() for name, value in request.headers}
        self.exports.append(Series(zlib.decompress(body, 31)))
        self.seen.append((request.target.decode(), headers))
        response = ExportMetricsServiceResponse()
        if self.rejects:
            response.partial_success.rejected_data_points = self.rejects
            response.partial_success.error_message = "too many"
        answer = response.SerializeToString() if self.body is None else self.body
        await connection.send_reply(self.status, answer, "application/x-protobuf")
        self._news.set()
        self._news = trio.Event()


@asynccontextmanager
async def collecting(
    collector: HTTPCollector, address: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Have it listen as long as the block lasts."""

    async def serve(stream: trio.abc.Stream) -> None:
        # What a client does not take, or breaks off, is its own affair.
        try:
            async with stream:
                await collector.serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        if context is None:
            listeners: list[Any] = await trio.open_tcp_listeners(port, host=address)
        else:
            listeners = list(await trio.open_ssl_over_tcp_listeners(port, context, host=address))
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield
        nursery.cancel_scope.cancel()
