"""Figures of the clients that are connected. What they call themselves makes no series.

A client says which language and version it is. Only names that RocketMQ has are labels; all others
are `other`. How many groups there are is bounded by the table of clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from node.figures.figure import Figure, Labels
from node.figures.sources import Sources
from tandem.wire.mq_version import MQ_VERSIONS
from tandem.wire.remoting_command import LANGUAGES
from tandem.wire.system_topics import CID_RMQ_SYS_TRANS

_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
_LANGUAGES: Final = {name: name.lower() for name in LANGUAGES}


def client_figures(sources: Sources) -> Iterator[Figure]:
    """Yield how many producers and consumers there are."""
    producers = Counter(
        (each.language, each.version)
        for group in sources.producers.groups()
        for each in sources.producers.producers(group)
    )
    for (language, version), count in _folded(producers).items():
        labels = Labels(language=language, version=version, protocol_type="remoting")
        yield Figure("rocketmq_producer_connections", labels, count)
    for group in sources.clients.groups():
        consumption = sources.clients.consumption(group)
        mode = _MODES.get(consumption.consume_type, "other") if consumption else "other"
        members = Counter(
            (each.language, each.version) for each in sources.clients.consumers(group)
        )
        for (language, version), count in _folded(members).items():
            labels = Labels(
                consumer_group=group,
                language=language,
                version=version,
                consume_mode=mode,
                protocol_type="remoting",
                is_system="true" if group == CID_RMQ_SYS_TRANS else "false",
            )
            yield Figure("rocketmq_consumer_connections", labels, count)


def _folded(counts: Counter[tuple[str, int]]) -> dict[tuple[str, str], int]:
    folded: dict[tuple[str, str], int] = {}
    for (language, version), count in counts.items():
        number = MQ_VERSIONS.get(version)
        key = (
            _LANGUAGES.get(language, "other"),
            "other" if number is None else f"v{number.replace('.', '_')}",
        )
        folded[key] = folded.get(key, 0) + count
    return folded
