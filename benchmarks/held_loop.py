"""What has held the one thread of a node: a part of `tail.py`, which starts nodes by it.

    python -P benchmarks/held_loop.py DIRECTORY cluster.yaml
    python -P benchmarks/held_loop.py DIRECTORY node --config cluster.yaml --name broker-a-0 ...

The first has the nodes of a cluster up until its standard input ends, and says READY. The second
runs one of them as `tandem_server` does, and writes a line of JSON for each stretch of a
millisecond or more to DIRECTORY/NAME. A stretch is what is between two polls of its sockets:
nobody is served meanwhile. It says how long it was, how much of that the thread ran (CPU), how much
it could have run and was not let (the machine was busy with others), and how much it waited: for
the disk, for memory of the system, for another thread of Python. And it says whose time that was,
by the names of tasks and of the calls that are looked at (`CALLS`), each without what is inside it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import inspect
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from store.machine import read_loop
from tandem.cluster.spec import read_spec
from tandem.cluster.supervisor import supervise
from tandem_server.__main__ import main as serve

STRETCH_NS_MIN: Final = 1_000_000

CALLS: Final = (
    "store.machine.real_disk.RealDisk.create",
    "store.machine.real_disk.RealDisk.open",
    "store.machine.real_disk.RealDisk.remove",
    "store.machine.real_disk.RealDisk.replace",
    "store.machine.real_disk.RealDisk.rename",
    "store.machine.real_disk.RealDisk.sync_now",
    "store.machine.real_disk.RealDisk.list_files",
    "store.machine.real_disk.RealDisk.space",
    "store.machine.real_disk.sync_directory",
    "threading.Thread.start",
    "store.machine.real_file.RealFile.allocate",
    "store.machine.real_file.RealFile.sync",
    "store.machine.real_file.RealFile.write",
    "store.machine.real_file.RealFile.close",
    "store.machine.real_disk.mapped",
    "store.files.next_file.NextFile.take",
    "store.files.next_file.NextFile.reserve",
    "store.files.store_checkpoint.StoreCheckpoint.flush_blocking",
    "store.services.reput_message_service.ReputMessageService.dispatch_some",
    "store.services.reput_message_service.ReputMessageService.index_some",
    "store.log.commit_log.CommitLog._write_run",
    "store.log.commit_log.CommitLog.append_message",
    "store.log.commit_log.CommitLog.append_data",
    "store.queue.consume_queue.ConsumeQueue.append_many",
    "node.handlers.send_runs.SendRunHandler._take_together",
    "node.handlers.send_runs.SendRunHandler._take",
)


class Share(msgspec.Struct, array_like=True):
    """Of a stretch, by one name: nanoseconds in all, run, ready but not run; page faults."""

    wall_ns: int = 0
    cpu_ns: int = 0
    unscheduled_ns: int = 0
    faults: int = 0
    major_faults: int = 0


class Stretch(msgspec.Struct, array_like=True):
    """One between two polls, or an unusually short one with a look at the garbage."""

    began_ns: int
    """Of `time.monotonic_ns`, which all processes of a machine share."""
    all: Share
    shares: dict[str, Share]


class Watch(trio.abc.Instrument):
    """Measures stretches of the thread that it is made in."""

    def __init__(self, out: int) -> None:
        self._out = out
        self.count = 0
        self.held_ns = 0
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._thread = threading.get_ident()
        self._names: list[str] = []
        self._shares: dict[str, Share] = {}
        self._began = (0, 0, 0, 0, 0)
        self._last = (0, 0, 0, 0, 0)
        self._step = ""

    def _now(self) -> tuple[int, int, int, int, int]:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        unscheduled = int(os.pread(self._schedule, 100, 0).split()[1])
        return (
            time.monotonic_ns(),
            time.thread_time_ns(),
            unscheduled,
            used.ru_minflt,
            used.ru_majflt,
        )

    def _count(self) -> None:
        """Give what has passed since the last look to the name that is at work."""
        now = self._now()
        name = self._names[-1] if self._names else "trio and sockets"
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share()
        last = self._last
        share.wall_ns += now[0] - last[0]
        share.cpu_ns += now[1] - last[1]
        share.unscheduled_ns += now[2] - last[2]
        share.faults += now[3] - last[3]
        share.major_faults += now[4] - last[4]
        self._last = now

    def enter(self, name: str) -> None:
        """What follows is its."""
        self._count()
        self._names.append(name)

    def leave(self) -> None:
        """It is through."""
        self._count()
        self._names.pop()

    def begin_stretch(self) -> None:
        """A poll has ended."""
        self._shares = {}
        self._began = self._last = self._now()

    def end_stretch(self) -> None:
        """A poll is about to begin."""
        if not self._began[0]:
            return
        self._count()
        wall = self._last[0] - self._began[0]
        self.count += 1
        self.held_ns += wall
        if wall >= STRETCH_NS_MIN:
            whole = Share(
                *(end - begin for end, begin in zip(self._last, self._began, strict=True))
            )
            line = msgspec.json.encode(Stretch(self._began[0], whole, self._shares))
            os.write(self._out, line + b"\n")
        self._began = (0, 0, 0, 0, 0)

    # -- of trio ---------------------------------------------------------------------------------

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task runs."""
        self.enter(f"task {task.name.replace('.<locals>', '')}")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It waits, or has ended."""
        self.leave()

    # -- of others -------------------------------------------------------------------------------

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Python begins or ends to look for garbage."""
        if threading.get_ident() != self._thread or not self._began[0]:
            return
        if phase == "start":
            self.enter(f"garbage, generation {info['generation']}")
        elif self._names and self._names[-1].startswith("garbage"):
            self.leave()

    def watch(self, path: str) -> None:
        """Have a function or method looked at, by its name from the package on."""
        owner: Any = None
        words = path.split(".")
        for length in range(len(words) - 1, 0, -1):
            try:
                owner = __import__(".".join(words[:length]), fromlist=["_"])
            except ModuleNotFoundError:
                continue
            break
        for word in words[length:-1]:
            owner = getattr(owner, word)
        call: Callable[..., Any] = getattr(owner, words[-1])
        name = ".".join(words[-2:])

        @functools.wraps(call)
        def watched(*args: Any, **more: Any) -> Any:  # noqa: ANN401 -- whatever it takes
            if threading.get_ident() != self._thread or not self._began[0]:
                return call(*args, **more)
            self.enter(name)
            try:
                return call(*args, **more)
            finally:
                self.leave()

        is_static = isinstance(inspect.getattr_static(owner, words[-1]), staticmethod)
        setattr(owner, words[-1], staticmethod(watched) if is_static else watched)


class _WatchedPoll:
    """The epoll of a loop."""

    def __init__(self, epoll: Any, watch: Watch) -> None:  # noqa: ANN401 -- select has no type for it
        self._epoll = epoll
        self._watch = watch

    def poll(self, *args: Any) -> Any:  # noqa: ANN401
        """Poll; what is before and after is a stretch."""
        self._watch.end_stretch()
        try:
            return self._epoll.poll(*args)
        finally:
            self._watch.begin_stretch()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._epoll, name)


class _WatchedLoop(read_loop.ReadLoop):
    watch_of_all: Watch

    def __init__(self, running: Any) -> None:  # noqa: ANN401
        super().__init__(running)
        self._epoll: Any = _WatchedPoll(self._epoll, self.watch_of_all)

    @classmethod
    def with_watch(cls, watch: Watch) -> type[Self]:
        cls.watch_of_all = watch
        return cls


async def _supervise(directory: str, file: str) -> None:
    def command(config: Path, name: str) -> list[str]:
        node = ["node", "--config", str(config), "--name", name, "--supervised"]
        return [sys.executable, "-P", __file__, directory, *node]

    def ready(_: object) -> None:
        sys.stdout.write("READY\n")
        sys.stdout.flush()

    await supervise(read_spec(Path(file)), ready=ready, lifeline_fd=os.dup(0), command=command)


def main() -> int:
    """Run a cluster, or one of its nodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", help="where nodes write what held them")
    parser.add_argument("cluster", help="a cluster file, or `node`")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="what `tandem_server node` takes")
    options = parser.parse_args()
    directory, arguments = options.directory, [options.cluster, *options.rest]
    if len(arguments) == 1:
        trio.run(_supervise, directory, options.cluster)
        return 0
    name = arguments[arguments.index("--name") + 1]
    watch = Watch(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    for path in CALLS:
        watch.watch(path)
    gc.callbacks.append(watch.collected)
    read_loop.ReadLoop = _WatchedLoop.with_watch(watch)  # type: ignore[misc]
    run = trio.run
    trio.run = lambda *args, **more: run(*args, instruments=[watch], **more)
    sys.argv = ["tandem_server", *arguments]
    return serve() or 0


if __name__ == "__main__":
    sys.exit(main())
