"""Send hostile bytes to real processes, and see whether anybody suffers.

    python -m tests.fuzz --target client --frames 100000 [--seed 7]
    python -m tests.fuzz --target all --frames 1000000

Targets: what listens (client, grpc, name-server, ha, replication, coordinator, control), records
(those of a fenced group in its coordinator), and files (decoders of all files, in this process). A
finding is a process that ended, a message of the canary that took longer than a second, memory
that grew beyond its bound, a traceback in a log, or an error that no decoder may raise. The exit
status is 1 if there was one. Each is printed with the seed and the batch to begin at: what a batch
sends is decided by these two alone.
"""

import argparse
import logging
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.attackers import (
    Attacker,
    ClassicLinkAttacker,
    ControlAttacker,
    CoordinatorAttacker,
    FencedLinkAttacker,
    RemotingAttacker,
)
from tests.fuzz.files import FileDecoders, UnexpectedError
from tests.fuzz.grpc import GrpcAttacker
from tests.fuzz.records import RecordsAttacker
from tests.fuzz.world import (
    READY_SECONDS_MAX,
    RSS_GROWTH_BYTES_MAX,
    WAIT_SECONDS_MAX,
    World,
    attacked_cluster,
)

TARGETS: Final = (
    *(
        "client",
        "grpc",
        "name-server",
        "ha",
        "replication",
        "coordinator",
        "control",
        "records",
        "files",
    ),
)
SHARES: Final = {
    "client": 0.3,
    "grpc": 0.1,
    "name-server": 0.2,
    "ha": 0.06,
    "replication": 0.06,
    "coordinator": 0.08,
    "control": 0.02,
    "records": 0.0001,
    "files": 0.18,
}
"""Of the frames of `--target all`: what is cheap and wide gets more."""

LOOK_SECONDS: Final = 1.0
FINDINGS_MAX: Final = 20


class Finding(msgspec.Struct, frozen=True):
    """What must not happen. `batch`: it happened in it or up to a second before."""

    target: str
    batch: int
    text: str


class Score(msgspec.Struct):
    """What was done to one target, and what came of it."""

    target: str
    frames: int = 0
    seconds: float = 0.0
    longest_wait_seconds: float = 0.0
    rss_growth_bytes: int = 0
    findings: int = 0


class Run:
    """All targets of one call of this program."""

    def __init__(self, seed: int, *, wait_seconds_max: float, quiet: bool) -> None:
        self._seed = seed
        self._wait_seconds_max = wait_seconds_max
        self._quiet = quiet
        self.findings: list[Finding] = []
        self.scores: list[Score] = []

    def attack(
        self, world: World | None, target: str, attacker: Attacker, frames: int, first: int
    ) -> None:
        """Send batch after batch; look around once a second."""
        score = Score(target)
        self.scores.append(score)
        if world is not None:
            world.canary.forget()
            world.rss_growth_bytes.clear()
        start = looked_at = shown_at = time.monotonic()
        number = first - 1
        while score.frames < frames and score.findings < FINDINGS_MAX:
            number += 1
            chance = random.Random(f"{self._seed}/{target}/{number}")
            try:
                score.frames += attacker.batch(chance, number)
            except UnexpectedError as error:
                self._found(score, number, str(error))
            now = time.monotonic()
            if world is not None and now - looked_at >= LOOK_SECONDS:
                looked_at = now
                if not self._look(world, score, number):
                    break
            if not self._quiet and now - shown_at >= 10:
                shown_at = now
                rate = score.frames / (now - start)
                _say(f"{target}: {score.frames:,} of {frames:,}, {rate:,.0f} a second")
        score.seconds = time.monotonic() - start
        if world is not None:
            time.sleep(LOOK_SECONDS)
            self._look(world, score, number)

    def _look(self, world: World, score: Score, batch: int) -> bool:
        """Note findings; False if there is nobody left to attack."""
        dead = world.dead()
        for name in dead:
            self._found(score, batch, f"process ended: {name}")
        for words in world.too_large():
            self._found(score, batch, f"memory: {words}; at most {RSS_GROWTH_BYTES_MAX >> 20} MiB")
        for line in world.new_log_lines():
            self._found(score, batch, f"log: {line}")
        growths = world.rss_growth_bytes.values()
        score.rss_growth_bytes = max(score.rss_growth_bytes, *growths, 0)
        seconds, words = world.canary.longest()
        score.longest_wait_seconds = max(score.longest_wait_seconds, seconds)
        if seconds > self._wait_seconds_max and score.target != "records":
            self._found(score, batch, f"the canary waited: {words}")
        world.canary.forget()
        return not dead

    def _found(self, score: Score, batch: int, text: str) -> None:
        score.findings += 1
        finding = Finding(score.target, batch, text)
        self.findings.append(finding)
        _say(
            f"FINDING {finding.target}: {finding.text}\n    again: python -m tests.fuzz --target"
            f" {finding.target} --seed {self._seed} --first {max(0, batch - 50)} --frames 20000"
        )

    def print_table(self) -> None:
        """Everything, at the end."""
        _say(
            f"{'target':12} {'frames':>10} {'a second':>9} {'longest wait':>13} {'memory':>8} found"
        )
        for score in self.scores:
            rate = score.frames / score.seconds if score.seconds else 0
            _say(
                f"{score.target:12} {score.frames:>10,} {rate:>9,.0f}"
                f" {score.longest_wait_seconds:>11.2f} s {score.rss_growth_bytes >> 20:>4} MiB"
                f" {score.findings:>5}"
            )
        total = sum(score.frames for score in self.scores)
        _say(f"{'all':12} {total:>10,}; seed {self._seed}; {len(self.findings)} findings")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program for people


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=summary)
    parser.add_argument("--target", choices=(*TARGETS, "all"), default="all")
    parser.add_argument("--frames", type=int, default=100_000, help="how many, over all targets")
    parser.add_argument("--seed", type=int, help="drawn if left out")
    parser.add_argument("--first", type=int, default=0, help="the batch to begin at")
    parser.add_argument(
        "--wait-seconds",
        type=float,
        default=WAIT_SECONDS_MAX,
        help="how long a message of the canary may take (a busy machine is slow by itself)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    targets = TARGETS if options.target == "all" else (options.target,)
    run = Run(seed, wait_seconds_max=options.wait_seconds, quiet=options.quiet)
    logging.disable()  # of this process: what stores say of damage, thousands of times
    _say(f"seed {seed}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-fuzz-")))
        world = None
        if targets != ("files",):
            world = stack.enter_context(attacked_cluster(directory))
        makers: dict[str, Callable[[World], Attacker]] = {
            "client": lambda world: RemotingAttacker(world, name_server=False),
            "grpc": GrpcAttacker,
            "name-server": lambda world: RemotingAttacker(world, name_server=True),
            "ha": ClassicLinkAttacker,
            "replication": FencedLinkAttacker,
            "coordinator": CoordinatorAttacker,
            "control": ControlAttacker,
            "records": RecordsAttacker,
        }
        for target in targets:
            share = SHARES[target] if len(targets) > 1 else 1.0
            frames = max(1, int(options.frames * share))
            if target == "files":
                run.attack(None, target, FileDecoders(directory / "files"), frames, options.first)
            elif world is not None:
                if world.dead():
                    _say(f"{target}: left out, the cluster is not whole any more")
                    continue
                run.attack(world, target, makers[target](world), frames, options.first)
                if not world.dead() and not world.canary.wait_well(READY_SECONDS_MAX):
                    run._found(run.scores[-1], 0, "messages are not taken any more")
    run.print_table()
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())
