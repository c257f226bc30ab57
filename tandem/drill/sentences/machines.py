"""Sentences about the machines of nodes: power, how long syncs take, clocks; and lost disks."""

from typing import Final

import trio

from tandem.drill.scenario import NodeFailedError, Stage
from tandem.drill.sentences.sentence import Action, Fault, Sentence, Words

NEEDS: Final = "machines"


async def _cut_power(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    machines = stage.machines
    machines.check_ready(nodes)
    stage.fault(f"cut the power of {', '.join(nodes)}")
    await stage.for_each(
        stage.cluster.kill, [node for node in nodes if stage.cluster.runs(node)], "is without power"
    )
    for node in nodes:
        await trio.to_thread.run_sync(machines.cut_power, node)


async def _lose(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        if stage.cluster.runs(node):
            raise NodeFailedError(f"{node} runs: kill it before its disk is lost")
        await trio.to_thread.run_sync(stage.disks.lose, node)
        stage.another_disk(node)
        stage.fault(f"lose the disk of {node}")


async def _lie(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.lie_about_syncs(node)
        stage.fault(f"let the disk of {node} forget what is synced")


async def _slow(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.slow_syncs(node, float(words["seconds"]))
        stage.fault(f"let syncs of {node} take {words['seconds']} s longer")


async def _fast(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.slow_syncs(node, 0.0)
        stage.mark(f"let syncs of {node} be as fast as they are")


def _clock(sign: int) -> Action:
    async def act(stage: Stage, words: Words) -> None:
        seconds = sign * float(words["seconds"])
        for node in stage.find(words["who"]):
            stage.machines.set_clock(node, seconds)
            stage.fault(
                f"set the clock of {node} {'ahead' if sign > 0 else 'back'} by {words['seconds']} s"
            )
        # A broker goes by its clock: what waits there is due that much earlier, also later on.
        stage.load.allow_early(seconds)

    return act


async def _right(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.set_clock(node, 0.0)
        stage.mark(f"set the clock of {node} right")


MACHINES: Final = (
    Sentence("cut the power of {who}", _cut_power, NEEDS, fault=Fault.POWER),
    Sentence("let the disk of {who} forget what is synced", _lie, NEEDS, fault=Fault.POWER),
    Sentence("lose the disk of {who}", _lose, fault=Fault.LOST_DISK),
    Sentence("let syncs of {who} take {seconds} s longer", _slow, NEEDS, fault=Fault.SLOW_DISK),
    Sentence("let syncs of {who} be fast again", _fast, NEEDS, fault=Fault.SLOW_DISK),
    Sentence("set the clock of {who} {seconds} s ahead", _clock(1), NEEDS, fault=Fault.CLOCK),
    Sentence("set the clock of {who} {seconds} s back", _clock(-1), NEEDS, fault=Fault.CLOCK),
    Sentence("set the clock of {who} right", _right, NEEDS, fault=Fault.CLOCK),
)
