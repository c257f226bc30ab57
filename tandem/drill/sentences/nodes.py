"""Sentences that kill, freeze and start nodes, and pass on an operator's orders."""

from typing import Final

from tandem.drill.scenario import Stage
from tandem.drill.sentences.sentence import Fault, Sentence, Takes, Words

_BACK: Final = "is back: recovered and listening"


async def _kill(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"kill -9 {', '.join(nodes)}")
    await stage.for_each(stage.cluster.kill, nodes, "is killed")


async def _stop(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"stop {', '.join(nodes)}")
    await stage.for_each(stage.cluster.stop, nodes, "is stopped")


async def _start(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.mark(f"start {', '.join(nodes)}")
    await stage.for_each(stage.cluster.start, nodes, _BACK)


async def _start_down(stage: Stage, words: Words) -> None:
    nodes = [node for node in stage.roles.nodes if not stage.cluster.runs(node)]
    stage.mark(f"start {', '.join(nodes) or 'nobody: all are up'}")
    await stage.for_each(stage.cluster.start, nodes, _BACK)


async def _restart(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.fault(f"restart {node}")
        await _stop_and_start(stage, node)


async def _stop_and_start(stage: Stage, node: str) -> None:
    await stage.for_each(stage.cluster.stop, [node], "is stopped")
    await stage.for_each(stage.cluster.start, [node], _BACK)


async def _upgrade(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.cluster.upgrade(node)
        stage.fault(f"upgrade {node}")
        await _stop_and_start(stage, node)


async def _go_back(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.cluster.go_back(node)
        stage.fault(f"take {node} back to the version before")
        await _stop_and_start(stage, node)


async def _freeze(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"freeze {', '.join(nodes)}")
    await stage.for_each(stage.cluster.freeze, nodes, "is frozen")


async def _resume(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.mark(f"resume {', '.join(nodes)}")
    await stage.for_each(stage.cluster.wake, nodes, "goes on")


async def _resign(stage: Stage, words: Words) -> None:
    (node,) = stage.find(words["who"])
    stage.fault(f"ask {node} to resign")
    await stage.for_each(stage.cluster.resign, [node], "was asked to resign")


async def _promote(stage: Stage, words: Words) -> None:
    (node,) = stage.find(words["who"])
    stage.fault(f"promote {node}, now master is {stage.master}")
    await stage.for_each(stage.cluster.promote, [node], "was asked to take over")


async def _rejoin(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        said = await stage.cluster.by_hand("rejoin", node)
        stage.mark(f"tandem ha rejoin {node}: {said}")


async def _recover(stage: Stage, words: Words) -> None:
    said = await stage.cluster.by_hand("recover-group")
    stage.mark(f"tandem ha recover-group: {said}")


NODES: Final = (
    Sentence("have {who} rejoin", _rejoin, fenced_only=True, fault=Fault.BY_HAND),
    Sentence("recover the group", _recover, fenced_only=True, fault=Fault.BY_HAND),
    Sentence("kill {who}", _kill, fault=Fault.KILL),
    Sentence("stop {who}", _stop, fault=Fault.STOP, takes=Takes.NODES_OR_COORDINATOR),
    Sentence("start whoever is down", _start_down),
    Sentence("start {who}", _start, takes=Takes.NODES_OR_COORDINATOR, of_stopped=True),
    Sentence("restart {who}", _restart, fault=Fault.STOP, takes=Takes.NODES_OR_COORDINATOR),
    Sentence("upgrade {who}", _upgrade, fault=Fault.VERSION),
    Sentence("take {who} back to the version before", _go_back, fault=Fault.VERSION),
    Sentence("freeze {who}", _freeze, fault=Fault.FREEZE),
    Sentence("resume {who}", _resume, fault=Fault.FREEZE),
    Sentence(
        "ask {who} to resign", _resign, fenced_only=True, fault=Fault.RESIGN, takes=Takes.ONE_NODE
    ),
    Sentence(
        "promote {who}", _promote, fenced_only=True, fault=Fault.PROMOTE, takes=Takes.ONE_NODE
    ),
)
