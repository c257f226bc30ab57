"""Sentences that cut, slow down and disturb the links between nodes, and with the coordinator."""

from collections.abc import Sequence
from typing import Final

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.drill.scenario import NodeFailedError, Stage
from tandem.drill.sentences.sentence import Fault, Sentence, Takes, Words

_ANYBODY: Final = Takes.NODES_OR_COORDINATOR


def _ends(stage: Stage, words: str) -> list[str]:
    return [COORDINATOR] if words == "the coordinator" else stage.find(words)


def _links(stage: Stage, sources: Sequence[str], other: str) -> list[tuple[str, str]]:
    """Return the links from each source to each of the others.

    Raises:
        NodeFailedError: there is none: both are the same nodes now.
    """
    everybody = [*stage.roles.nodes, COORDINATOR]
    targets = everybody if other == "everything" else _ends(stage, other)
    found = [(source, target) for source in sources for target in targets if target not in sources]
    if not found:
        raise NodeFailedError(f"there is no link between {', '.join(sources)} and {other} now")
    return found


def _named(stage: Stage, words: str) -> str:
    """Words for nodes with the nodes' names, for the list of faults."""
    return words if words == "everything" else ", ".join(_ends(stage, words))


async def _cut_both_ways(stage: Stage, words: Words) -> None:
    sources, network = _ends(stage, words["who"]), stage.network
    links = _links(stage, sources, words["other"])
    stage.fault(f"cut {', '.join(sources)} from {_named(stage, words['other'])}")
    if words["other"] == "everything":
        for source in sources:
            targets = [target for _, target in _links(stage, [source], "everything")]
            await network.cut_off(source, targets)
        return
    for source, target in links:
        network.cut(source, target)
        network.cut(target, source)


async def _cut_one_way(stage: Stage, words: Words) -> None:
    sources, network = _ends(stage, words["who"]), stage.network
    links = _links(stage, sources, words["other"])
    stage.fault(f"cut bytes from {', '.join(sources)} to {_named(stage, words['other'])}")
    for source, target in links:
        network.cut(source, target)


async def _cut_replication(stage: Stage, words: Words) -> None:
    sources, network = _ends(stage, words["who"]), stage.network
    other = _named(stage, words["other"])
    links = _links(stage, sources, words["other"])
    stage.fault(f"cut replication between {', '.join(sources)} and {other}")
    for source, target in links:
        network.cut(source, target, replication_only=True)
        network.cut(target, source, replication_only=True)


async def _delay(stage: Stage, words: Words) -> None:
    sources, network = _ends(stage, words["who"]), stage.network
    other = _named(stage, words["other"])
    links = _links(stage, sources, words["other"])
    stage.fault(f"delay {', '.join(sources)} and {other} by {words['number']} ms")
    seconds = int(words["number"]) / 1000
    for source, target in links:
        network.slow(source, target, delay_seconds=seconds)
        network.slow(target, source, delay_seconds=seconds)


async def _limit(stage: Stage, words: Words) -> None:
    targets, network = _ends(stage, words["who"]), stage.network
    stage.fault(f"limit bytes to {', '.join(targets)} to {words['number']} kB/s")
    for target, source in _links(stage, targets, "everything"):
        network.slow(source, target, bytes_per_second=int(words["number"]) * 1000)


async def _reset(stage: Stage, words: Words) -> None:
    nodes, network = _ends(stage, words["who"]), stage.network
    stage.fault(f"reset the connections of {', '.join(nodes)}")
    for node in nodes:
        network.reset(node)


async def _heal(stage: Stage, words: Words) -> None:
    await stage.network.heal()
    stage.mark("heal the network")


async def _disturb(stage: Stage, words: Words) -> None:
    network = stage.network
    for node in stage.find(words["who"]):
        stage.fault(f"{await network.disturb(node)} ({node})")


NETWORK: Final = (
    Sentence(
        "cut {who} from {other}",
        _cut_both_ways,
        "network",
        fenced_only=True,
        fault=Fault.CUT_OFF,
        takes=_ANYBODY,
    ),
    Sentence(
        "cut bytes from {who} to {other}", _cut_one_way, "network", fenced_only=True, takes=_ANYBODY
    ),
    Sentence(
        "cut replication between {who} and {other}", _cut_replication, "network", fenced_only=True
    ),
    Sentence(
        "delay {who} and {other} by {number} ms",
        _delay,
        "network",
        fenced_only=True,
        takes=_ANYBODY,
    ),
    Sentence(
        "limit bytes to {who} to {number} kB/s",
        _limit,
        "network",
        fenced_only=True,
        takes=_ANYBODY,
    ),
    Sentence("reset connections of {who}", _reset, "network", fenced_only=True, takes=_ANYBODY),
    Sentence("heal the network", _heal, "network", fenced_only=True, fault=Fault.CUT_OFF),
    Sentence("disturb {who}", _disturb, "network", fenced_only=True),
)
