"""The one stream of figures of a broker.

What RocketMQ's tools are answered and what a scrape gets are both read from it: a number is worked
out in one place. The next figure is worked out when it is asked for, so a caller may let others
have their turn between any two; each is then of its own moment.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.figures.broker_figures import broker_figures
from node.figures.client_figures import client_figures
from node.figures.figure import Figure
from node.figures.group_lag import GroupLags
from node.figures.message_figures import message_figures
from node.figures.replication_figures import replication_figures
from node.figures.sources import Sources
from node.figures.wait_figures import wait_figures


def figures(sources: Sources, lags: GroupLags) -> Iterator[Figure]:
    """Yield all figures of a broker; `lags` remembers what is dear to find out twice."""
    yield from broker_figures(sources)
    yield from replication_figures(sources)
    yield from wait_figures(sources)
    yield from sources.live()
    yield from message_figures(sources)
    yield from lags.figures(sources)
    yield from client_figures(sources)
