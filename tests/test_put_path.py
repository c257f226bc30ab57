"""What one message costs on its way into a log, and out of it, in calls: alike on every machine.

Whole nodes run in simulation, one seed, on virtual time; a client keeps some requests in flight,
and every call is counted that the nodes' own modules make or take while it does. A change that adds
a call for each message is seen here, and one that takes some away may lower the bounds:

    pytest -n0 -s tests/test_put_path.py    prints what there is now, function by function

A change that needs another call, and is worth it, raises the bound and says so in its message.
"""

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import pytest
import trio

from benchmarks.pipelined import PULLED, QUEUES, count_answers, pull_frames, send_frames
from node.simulated import deterministic_trio
from node.simulated.network import SimulatedStream
from store.machine.network import ReceivesSome, Stream
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.load import load_config
from tandem.wire import native
from tandem.wire.message import Host
from tests.node.world import MASTER, NAMES, cluster_config, fenced_cluster, open_world
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS


class Calls(msgspec.Struct, frozen=True):
    """How many calls a message, or a pull of 32, takes, all nodes together.

    Attributes:
        python: Of functions of ours, written in Python; also a coroutine that goes on.
        c: Of functions in C, such as numpy's, from ours.
        sends: Of bytes over a connection, the client's among them.
        receives: The same; one that has to wait counts again when it goes on.
    """

    python: float
    c: float
    sends: float
    receives: float


# Half a call above what it is: one more for each message is too many. In a fenced
# group chance decides how often a frame comes in two pieces; a request more at the start moves it.
BOUNDS: Final = {
    ("async", 1): Calls(python=77.2, c=50.2, sends=2.3, receives=7.0),
    ("async", 64): Calls(python=29.2, c=36.0, sends=0.08, receives=0.24),
    ("sync", 1): Calls(python=233.5, c=148.5, sends=4.4, receives=13.5),
    ("sync", 64): Calls(python=40.2, c=49.5, sends=0.17, receives=0.48),
    ("fenced", 1): Calls(python=614.9, c=397.6, sends=6.8, receives=20.8),
    ("fenced", 64): Calls(python=53.6, c=81.0, sends=0.25, receives=0.7),
    # A pull reads the clock twice, for getMessageEntireTimeMax.
    ("pull", 1): Calls(python=249.5, c=170.3, sends=2.3, receives=7.0),
    ("pull", 16): Calls(python=223.8, c=164.8, sends=1.0, receives=2.7),
}

IN_C: Final = {
    ("async", 64): Calls(python=4.2, c=3.0, sends=0.08, receives=0.24),
    ("sync", 64): Calls(python=10.2, c=6.8, sends=0.17, receives=0.48),
    ("fenced", 64): Calls(python=22.8, c=15.7, sends=0.25, receives=0.7),
    ("pull", 1): Calls(python=74.9, c=39.9, sends=2.3, receives=7.0),
    ("pull", 16): Calls(python=10.0, c=6.0, sends=1.0, receives=2.7),
}
"""With the loops in C; one put in flight is the same."""

ROUNDS: Final = {1: 100, 16: 20, 64: 12}
"""By how many are in flight: how often all of them are sent."""

WARM_ROUNDS: Final = 4
SHOWN: Final = 40
OURS: Final = tuple(str(ROOT / package) + "/" for package in ("tandem", "store", "ha", "node"))


TESTS: Final = (f"{ROOT}/tests/", f"{ROOT}/benchmarks/", f"{ROOT}/node/simulated/")


class CallCounter:
    """Counts the calls of our modules while it is on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_function: Counter[str] = Counter()
        self._is_ours: dict[Any, str] = {
            SimulatedStream._send.__code__: "sends",
            SimulatedStream.receive_some.__code__: "receives",
            # Of a real connection what comes is read by a loop; see store.machine.read_loop.
            ReceivesSome.receive_while.__code__: "",
            # The simulated network names its connections.
            Host.__str__.__code__: "",
            vars(Host)["is_v6"].fget.__code__: "",
        }

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        kind = self._is_ours.get(code)
        if kind is None:
            is_ours = code.co_filename.startswith(OURS) and not code.co_filename.startswith(TESTS)
            kind = self._is_ours[code] = "python" if is_ours else ""
        if event == "call":
            if kind != "python":
                self.counts[kind] += 1
            elif frame.f_back is None or not frame.f_back.f_code.co_filename.startswith(TESTS):
                self.counts[kind] += 1
                self.by_function[f"{Path(code.co_filename).name} {code.co_qualname}"] += 1
        elif event == "c_call" and kind == "python":
            self.counts["c"] += 1


NODES: Final = {"async": ("a0",), "sync": ("a0", "a1"), "fenced": NAMES, "pull": ("a0",)}


def roomy_config(directory: Path, kind: str) -> ClusterConfig:
    """No file is at its end while there is counting, and nothing is done in the background."""
    if kind == "fenced":
        fenced_cluster(directory)
    else:
        cluster_config(directory, "SYNC_MASTER" if kind == "sync" else "ASYNC_MASTER")
    file = directory / "cluster.yaml"
    text = file.read_text()
    for name, size in (
        ("mapped_file_size_commit_log_bytes", 16 << 20),
        ("mapped_file_size_consume_queue_bytes", 600_000),
        ("max_hash_slot_num", 20_000),
        ("max_index_num", 100_000),
    ):
        before, _, after = text.partition(f"{name}: ")
        text = f"{before}{name}: {size}\n{after.partition(chr(10))[2]}"
    # The scrub would read while there is counting, or would not.
    text = text.replace("\nstore:\n", "\nstore:\n  scrub_interval_hours: 0\n")
    assert "scrub_interval_hours: 0" in text
    file.write_text(text)
    return load_config(file)


async def load_and_count(
    config: ClusterConfig, names: tuple[str, ...], depth: int, *, pulls: bool
) -> CallCounter:
    counter = CallCounter()
    async with open_world(config) as world:
        # Nobody watches, as in a process of its own.
        machine_of = world._machine
        world._machine = lambda name: msgspec.structs.replace(machine_of(name), on_event=None)  # type: ignore[method-assign]
        await world.start(*names)
        is_fenced = config.node(names[0]).is_fenced
        master = world.address(await world.master(*names)) if is_fenced else MASTER
        async with world.client(master) as client:
            with trio.fail_after(PATIENCE_SECONDS):
                while (await client.send(b"is the slave there?", topic="Bench")).code != 0:
                    await trio.sleep(0.1)
        # No service that runs now and then is new to its work.
        await trio.sleep(2)
        stream = await world._client.connect(master, 10911, source=None)
        frames = send_frames("Bench", depth, wait=True)
        if pulls:
            await keep_in_flight(stream, send_frames("Bench", 64, wait=True), 64, 2 * PULLED)
            frames = pull_frames("Bench", dict.fromkeys(range(QUEUES), 0), PULLED)
            await trio.sleep(2)  # What was put is in the index then.
        await keep_in_flight(stream, frames, depth, WARM_ROUNDS)
        counter.start()
        await keep_in_flight(stream, frames, depth, ROUNDS[depth], WARM_ROUNDS)
        counter.stop()
        await stream.aclose()
    return counter


async def keep_in_flight(
    stream: Stream, frames: list[bytes], depth: int, rounds: int, first_round: int = 0
) -> None:
    """Send so many requests at once, and again when all of them are answered."""
    frames = frames * (depth // len(frames) + 1)
    for number in range(first_round, first_round + rounds):
        first = number * depth % (len(frames) - depth + 1)
        await stream.send_all(b"".join(frames[first : first + depth]))
        left, rest = depth, b""
        while left:
            count, rest = count_answers(rest + await stream.receive_some(1 << 20))
            left -= count


@pytest.mark.slow
@pytest.mark.usefixtures("_in_c_and_python")
@pytest.mark.parametrize(("kind", "depth"), BOUNDS)
def test_a_request_takes_no_more_calls_than_it_did(kind: str, depth: int, tmp_path: Path) -> None:
    config = roomy_config(tmp_path, kind)

    load = partial(load_and_count, config, NODES[kind], depth, pulls=kind == "pull")
    counter = deterministic_trio.run(1, load)

    messages = ROUNDS[depth] * depth
    in_c = IN_C if native.loops is not None else {}
    bounds = in_c.get((kind, depth), BOUNDS[kind, depth])
    found = {name: round(counter.counts[name] / messages, 2) for name in Calls.__struct_fields__}
    beyond = {name: calls for name, calls in found.items() if calls > getattr(bounds, name)}
    by_function = counter.by_function.most_common(SHOWN)
    most = [f"{calls / messages:8.2f} {name}\n" for name, calls in by_function]
    sys.stdout.write(f"{kind}, {depth} in flight, calls a message: {found}\n{''.join(most)}")
    assert not beyond, f"the bounds are {bounds}; what is called most is above"
