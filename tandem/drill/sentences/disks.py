"""Sentences that fill disks and damage the ends of logs."""

from typing import Final

import trio

from tandem.drill.scenario import OutOfPlaceError, Stage
from tandem.drill.sentences.sentence import Fault, Sentence, Takes, Words

FULL_BYTES: Final = 256 * 1024
"""A full disk may have so much room: what runs meanwhile may remove a file."""


async def _fill(stage: Stage, words: Words) -> None:
    for who in stage.find(words["who"]):
        fault = f"fill the disk of {who}"
        stage.disks.fill(who)
        stage.fault(fault)
        room = stage.disks.room_bytes(who)
        stage.did(fault, f"{room:,} bytes are left", count=room, is_felt=room < FULL_BYTES)


async def _free(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    for node in nodes:
        stage.disks.free(node)
    stage.mark(f"free the disk of {', '.join(nodes)}")


async def _cut_tail(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        _check_down(stage, node, "the end of its log is cut")
        stage.disks.damage_tail(node, int(words["number"]), cut=True)
        stage.fault(f"cut the last {words['number']} bytes of the log of {node}")


async def _garble_tail(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        _check_down(stage, node, "the end of its log is garbled")
        stage.disks.damage_tail(node, int(words["number"]), cut=False)
        stage.fault(f"garble the last {words['number']} bytes of the log of {node}")


async def _copy(stage: Stage, words: Words) -> None:
    for who in stage.find(words["who"]):
        await trio.to_thread.run_sync(stage.disks.keep_copy, who)
        stage.mark(f"copy the directory of {who}")


async def _put_back(stage: Stage, words: Words) -> None:
    for who in stage.find(words["who"]):
        _check_down(stage, who, "a copy is put back")
        await trio.to_thread.run_sync(stage.disks.put_back, who)
        stage.another_disk(who)
        stage.fault(f"put the copy of the directory of {who} back")


def _check_down(stage: Stage, who: str, what: str) -> None:
    """Raise OutOfPlaceError for who runs: its files would change under it."""
    if stage.cluster.runs(who):
        raise OutOfPlaceError(f"{who} runs: stop it before {what}")


_ANYBODY: Final = Takes.NODES_OR_COORDINATOR

DISKS: Final = (
    Sentence("copy the directory of {who}", _copy, fault=Fault.COPY, takes=_ANYBODY),
    Sentence(
        "put the copy of the directory of {who} back",
        _put_back,
        fault=Fault.COPY,
        takes=_ANYBODY,
        of_stopped=True,
    ),
    Sentence("fill the disk of {who}", _fill, "disks", takes=_ANYBODY),
    Sentence("free the disk of {who}", _free, "disks", takes=_ANYBODY),
    Sentence(
        "cut the last {number} bytes of the log of {who}",
        _cut_tail,
        fault=Fault.TORN_TAIL,
        of_stopped=True,
    ),
    Sentence(
        "garble the last {number} bytes of the log of {who}",
        _garble_tail,
        fault=Fault.TORN_TAIL,
        of_stopped=True,
    ),
)
