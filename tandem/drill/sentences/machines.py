"""Sentences about the machines of nodes: power, how long syncs take, clocks; and lost disks."""

from functools import partial
from typing import Final

import trio

from tandem.drill.breakable import Machines
from tandem.drill.scenario import OutOfPlaceError, Stage
from tandem.drill.sentences.sentence import Action, Fault, Sentence, Words

NEEDS: Final = "machines"


async def _cut_power(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    machines = stage.machines
    machines.check_ready(nodes)
    fault = f"cut the power of {', '.join(nodes)}"
    stage.fault(fault)
    await stage.for_each(
        stage.cluster.kill, [node for node in nodes if stage.cluster.runs(node)], "is without power"
    )
    count = 0
    for node in nodes:
        count += await trio.to_thread.run_sync(machines.cut_power, node)
    # Where all was synced it was no more than a kill.
    stage.did(fault, f"{count:,} files had what was not synced", count=count, is_felt=count > 0)


async def _lose(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        if stage.cluster.runs(node):
            raise OutOfPlaceError(f"{node} runs: kill it before its disk is lost")
        count = stage.disks.count_files(node)
        await trio.to_thread.run_sync(stage.disks.lose, node)
        left = stage.disks.count_files(node)
        stage.another_disk(node)
        fault = f"lose the disk of {node}"
        stage.fault(fault)
        text = f"{count:,} files were there, {left:,} are left"
        stage.did(fault, text, count=count - left, is_felt=count > 0 and not left)


async def _lie(stage: Stage, words: Words) -> None:
    machines = stage.machines
    for node in stage.find(words["who"]):
        fault = f"let the disk of {node} forget what is synced"
        machines.lie_about_syncs(node)
        stage.fault(fault)
        stage.lasts(
            fault, (node, "lies"), "syncs were forgotten", partial(_syncs_forgotten, machines, node)
        )


async def _slow(stage: Stage, words: Words) -> None:
    machines = stage.machines
    for node in stage.find(words["who"]):
        fault = f"let syncs of {node} take {words['seconds']} s longer"
        stage.lasts(
            fault, (node, "syncs"), "syncs were delayed", partial(_syncs_delayed, machines, node)
        )
        machines.slow_syncs(node, float(words["seconds"]))
        stage.fault(fault)


async def _fast(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.slow_syncs(node, 0.0)
        stage.effects.end((node, "syncs"))
        stage.mark(f"let syncs of {node} be as fast as they are")


def _clock(sign: int) -> Action:
    async def act(stage: Stage, words: Words) -> None:
        seconds = sign * float(words["seconds"])
        machines = stage.machines
        for node in stage.find(words["who"]):
            way = "ahead" if sign > 0 else "back"
            fault = f"set the clock of {node} {way} by {words['seconds']} s"
            stage.lasts(
                fault,
                (node, "clock"),
                "readings of its clock were wrong",
                partial(_times_wrong, machines, node),
            )
            machines.set_clock(node, seconds)
            stage.fault(fault)
        # A broker goes by its clock: what waits there is due that much earlier, also later on.
        stage.load.allow_early(seconds)

    return act


async def _right(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.machines.set_clock(node, 0.0)
        stage.effects.end((node, "clock"))
        stage.mark(f"set the clock of {node} right")


def _syncs_delayed(machines: Machines, node: str) -> int:
    return machines.felt(node).syncs_delayed


def _syncs_forgotten(machines: Machines, node: str) -> int:
    return machines.felt(node).syncs_forgotten


def _times_wrong(machines: Machines, node: str) -> int:
    return machines.felt(node).times_wrong


MACHINES: Final = (
    Sentence("cut the power of {who}", _cut_power, NEEDS, fault=Fault.POWER),
    Sentence("let the disk of {who} forget what is synced", _lie, NEEDS, fault=Fault.POWER),
    Sentence("lose the disk of {who}", _lose, fault=Fault.LOST_DISK, of_stopped=True),
    Sentence("let syncs of {who} take {seconds} s longer", _slow, NEEDS, fault=Fault.SLOW_DISK),
    Sentence("let syncs of {who} be fast again", _fast, NEEDS, fault=Fault.SLOW_DISK),
    Sentence("set the clock of {who} {seconds} s ahead", _clock(1), NEEDS, fault=Fault.CLOCK),
    Sentence("set the clock of {who} {seconds} s back", _clock(-1), NEEDS, fault=Fault.CLOCK),
    Sentence("set the clock of {who} right", _right, NEEDS, fault=Fault.CLOCK),
)
