"""Sentences that let disks rot under a cluster, and wait until what rotted is whole again."""

from typing import Final

import trio

from tandem.drill.rot import OF_RUNNING_NODES, OF_STOPPED_NODES, RotKind
from tandem.drill.scenario import OutOfPlaceError, Seen, Stage
from tandem.drill.sentences.expectations import expect_in_sync
from tandem.drill.sentences.sentence import Action, Fault, Sentence, Words

HEALED_SECONDS_MAX: Final = 60.0
DOWN_SHARE: Final = 0.4
"""How often a disk rots while its node is down, and not under a running one."""
KILL_SHARE: Final = 0.3
"""How often a node is killed for its own sake after something was healed."""


def _rot(kind: RotKind) -> Action:
    async def act(stage: Stage, words: Words) -> None:
        for node in stage.find(words["who"]):
            await _rot_one(stage, node, kind)

    return act


async def _rot_one(stage: Stage, node: str, kind: RotKind) -> None:
    if kind not in OF_RUNNING_NODES and stage.cluster.runs(node):
        raise OutOfPlaceError(
            f"{node} runs, and a file that gets short under it would end it: kill it first"
        )
    done = await trio.to_thread.run_sync(stage.disks.rot, node, kind)
    stage.rotten.append((node, done))
    stage.fault(f"{done} of {node}")


async def _scrub(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        await _scrub_one(stage, node)


async def _scrub_one(stage: Stage, node: str) -> None:
    said = await stage.cluster.by_hand("scrub", node)
    stage.mark(f"tandem ha scrub {node}: {said}")


async def _healed(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        await _expect_healed(stage, node, float(words["seconds"]))


async def _expect_healed(stage: Stage, node: str, within_seconds: float) -> None:
    """Wait until what rotted on a disk is as on the disks of the others.

    Raises:
        UnmetError: it was not within the time.
    """

    def look() -> Seen:
        left = [
            str(rot)
            for name, rot in stage.rotten
            if name == node and not stage.disks.is_healed(node, rot)
        ]
        return Seen(not left, f"not healed: {', '.join(left)}" if left else "as on the other disks")

    await stage.expect(f"what rotted on the disk of {node} is healed", look, within_seconds)
    stage.rotten = [(name, rot) for name, rot in stage.rotten if name != node]


async def _let_disks_rot(stage: Stage, words: Words) -> None:
    """Hurt one disk after the other, each when the last one is whole; kill nodes in between."""
    every_seconds = float(words["seconds"])
    end = stage.now() + int(words["share"]) / 100 * stage.load_seconds
    while stage.now() < end:
        next_at = stage.now() + every_seconds
        node = stage.chance.choice(stage.roles.nodes)
        is_down = stage.chance.random() < DOWN_SHARE
        if is_down:
            await _kill(stage, node)
        await _rot_one(
            stage, node, stage.chance.choice(OF_STOPPED_NODES if is_down else OF_RUNNING_NODES)
        )
        if is_down:
            await _start(stage, node)
        await _scrub_one(stage, node)
        await _expect_healed(stage, node, HEALED_SECONDS_MAX)
        await expect_in_sync(stage, HEALED_SECONDS_MAX)
        if stage.chance.random() < KILL_SHARE:
            victim = stage.chance.choice(stage.roles.nodes)
            await _kill(stage, victim)
            await trio.sleep(stage.chance.uniform(0.0, 2.0))
            await _start(stage, victim)
            await expect_in_sync(stage, HEALED_SECONDS_MAX)
        await trio.sleep(max(0.0, next_at - stage.now()))


async def _kill(stage: Stage, node: str) -> None:
    stage.fault(f"kill -9 {node}")
    await stage.for_each(stage.cluster.kill, [node], "is killed")


async def _start(stage: Stage, node: str) -> None:
    stage.mark(f"start {node}")
    await stage.for_each(stage.cluster.start, [node], "is back: recovered and listening")


ROT: Final = (
    Sentence("flip a bit in the log of {who}", _rot("flip"), fenced_only=True, fault=Fault.ROT),
    Sentence("zero a page of the log of {who}", _rot("zero"), fenced_only=True, fault=Fault.ROT),
    Sentence("lose a file of the log of {who}", _rot("lose"), fenced_only=True, fault=Fault.ROT),
    Sentence(
        "shorten a file of the log of {who}",
        _rot("shorten"),
        fenced_only=True,
        fault=Fault.ROT,
        of_stopped=True,
    ),
    Sentence("scrub {who}", _scrub, fenced_only=True, fault=Fault.ROT),
    Sentence("expect {who} healed within {seconds} s", _healed, fenced_only=True, fault=Fault.ROT),
    Sentence(
        "let disks rot for {share} %, one every {seconds} s",
        _let_disks_rot,
        fenced_only=True,
        fault=Fault.ROT,
    ),
)
