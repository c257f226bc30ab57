"""Exports the figures of a node to a collector, again and again, and troubles nobody with it.

Each export is of its own moment, and figures are cumulative: one that is lost is made good by the
next, so nothing is kept and nothing is sent twice. A collector that is away, slow or of another
mind costs one request an interval, and one line in the log each time that its state changes:

    taken --> unreachable | refused | partly | not_sent --> taken
"""

from __future__ import annotations

import logging
import zlib
from typing import Final, Protocol

import trio

from node.metrics.collection import Collection
from node.metrics.otlp_collector import NotTaken, NotTakenError
from node.metrics.otlp_request import OTLPRequests, Times, rejected
from tandem import __version__

_log = logging.getLogger(__name__)

TAKEN: Final = "taken"

_SHOWN_CHARACTERS_MAX: Final = 200
_GZIP: Final = 16 + zlib.MAX_WBITS


class Collector(Protocol):
    """Where exports go."""

    @property
    def endpoint(self) -> str:
        """Its URL, which has no secret in it."""

    async def send(self, body: bytes) -> bytes:
        """Send a request; return the body of the answer.

        Raises:
            NotTakenError: The collector has not taken it, or nobody knows.
        """


class OTLPExporter:
    """The exports of one node."""

    def __init__(self, collector: Collector, *, interval_seconds: float) -> None:
        """Export at once, and then at this interval."""
        self._collector = collector
        self._interval = interval_seconds
        self._state: str | None = None
        self._lost = 0

    async def run(self, collection: Collection) -> None:
        """Export until cancelled."""
        own = dict(collection.labels_of_node.pairs)
        requests = OTLPRequests(
            collection.bases,
            {
                "service.name": "tandem-mq",
                "service.namespace": own["cluster"],
                "service.instance.id": own["node"],
                "service.version": __version__,
            },
            version=__version__,
            series_max=collection.settings.series_max,
            with_exporter_names=collection.settings.exporter_names,
        )
        due = trio.current_time()
        while True:
            await self._export(requests, collection)
            # After one that took longer, the next one is when it would have been without it.
            due += self._interval * (1 + max(0, trio.current_time() - due) // self._interval)
            await trio.sleep_until(due)

    async def _export(self, requests: OTLPRequests, collection: Collection) -> None:
        try:
            body = await self._request(requests, collection)
        except Exception:  # noqa: BLE001 - an export must not end a node
            _log.exception("metrics could not be exported: a bug")
            return
        try:
            _check(await self._collector.send(body))
        except NotTakenError as error:
            collection.exports[error.why.value] += 1
            self._note(error.why.value, str(error))
        else:
            collection.exports[TAKEN] += 1
            self._note(TAKEN, "")

    async def _request(self, requests: OTLPRequests, collection: Collection) -> bytes:
        """Collect and encode, compressed, with a turn for everybody else after each part."""
        gzip = zlib.compressobj(1, wbits=_GZIP)
        parts = []

        def times() -> Times:
            return Times(
                collection.now_ms(),
                collection.since_ms(is_of_process=True),
                collection.since_ms(is_of_process=False),
            )

        for part in requests.write(collection.figures(), times):
            parts.append(gzip.compress(part))
            await trio.lowlevel.checkpoint()
        parts.append(gzip.flush())
        return b"".join(parts)

    def _note(self, state: str, why: str) -> None:
        if state != TAKEN:
            self._lost += 1
        if state == self._state:
            return
        is_first, self._state = self._state is None, state
        if state != TAKEN:
            _log.warning(
                "metrics are not exported to %s: %s; it is tried again every %g s",
                self._collector.endpoint,
                why,
                self._interval,
            )
        elif is_first:
            _log.info(
                "metrics are exported to %s every %g s", self._collector.endpoint, self._interval
            )
        else:
            _log.info(
                "metrics are exported to %s again; exports lost: %d",
                self._collector.endpoint,
                self._lost,
            )
            self._lost = 0


def _check(answer: bytes) -> None:
    found = rejected(answer)
    if found is None:
        raise NotTakenError("its answer is none of a collector's", NotTaken.REFUSED)
    count, why = found
    if count:
        words = repr(why[:_SHOWN_CHARACTERS_MAX])
        raise NotTakenError(f"it left out {count} series, and says {words}", NotTaken.PARTLY)
