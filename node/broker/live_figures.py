"""Figures of what a broker does at the moment: who waits, and for what; and what it has refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from node.broker.parts import BrokerParts
from node.figures.figure import NO_LABELS, Figure, Labels
from node.handlers.parked_puts import ParkedPuts
from node.remoting.server import Server
from tandem.wire.response_code import ResponseCode

_NAMES: Final = {int(code): code.name.lower() for code in ResponseCode}


def live_figures(
    server: Server, parts: BrokerParts, *, parked: ParkedPuts, rounds_count: int
) -> Iterator[Figure]:
    """Yield them."""
    for name, value in (
        ("tandem_connections", server.connections_count),
        ("tandem_held_pulls", parts.holds.held_count),
        ("tandem_waiting_puts", parked.waiting_count),
        ("tandem_request_rounds_total", rounds_count),
        ("tandem_requests_not_served_total", sum(parts.unsupported.counts.values())),
    ):
        yield Figure(name, NO_LABELS, value)
    # There are no pools of threads, each with a queue; connections wait in one row.
    processor = Labels(processor="all")
    yield Figure("rocketmq_processor_watermark", processor, server.waiting_count)
    refused: dict[str, int] = {}
    for code, count in parts.outbox.refused.items():
        name = _NAMES.get(code, "other")
        refused[name] = refused.get(name, 0) + count
    for name, count in refused.items():
        yield Figure("tandem_requests_refused_total", Labels(code=name), count)
