"""Machines of nodes, with programs in the places of nodes: what a loss of power leaves of files."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tandem.drill import machines as module
from tandem.drill.breakable import Felt
from tandem.drill.machines import Machines, machines
from tandem.drill.scenario import NodeFailedError, NotPossibleError
from tests.support.patience import PATIENCE_SECONDS

WRITE = """
import os
def write(name, data, sync=True):
    with open(name, "ab", buffering=0) as file:
        file.write(data)
        if sync:
            os.fdatasync(file.fileno())
def sync_names(name="."):
    directory = os.open(name, os.O_RDONLY)
    os.fsync(directory)
"""

COMPILED = module._compiled


class Place:
    """A node `a` with its store."""

    def __init__(self, directory: Path, *, keeps: bool = True) -> None:
        self.store = directory / "data" / "a"
        self.machines = machines(directory / "machines", {"a": self.store}, keeps=keeps)

    def run(self, program: str) -> str:
        """Run a program of the node in its store; return what it prints."""
        environment = {**os.environ, **self.machines.environment("a")}
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", WRITE + program],
            cwd=self.store,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout.decode()

    def left(self) -> dict[str, bytes]:
        """Cut the power, and return the files that are left."""
        self.machines.cut_power("a")
        files = [path for path in self.store.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.store)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile it once for all tests."""
    directory = tmp_path_factory.mktemp("library")
    why_not = module._compiled(directory)
    if why_not:
        pytest.skip(why_not)
    compiled = (directory / module.LIBRARY_NAME).read_bytes()

    def copied(place: Path) -> str:
        place.mkdir(parents=True, exist_ok=True)
        (place / module.LIBRARY_NAME).write_bytes(compiled)
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_compiled", copied)
        yield


@pytest.fixture
def place(tmp_path: Path, _library: None) -> Place:
    return Place(tmp_path)


def test_what_was_synced_is_left_and_nothing_else(place: Place) -> None:
    place.run(
        'os.makedirs("log/deep")\n'
        'write("log/deep/0", b"x" * 70_000); write("log/deep/0", b"y", sync=False)\n'
        'write("other", b"z", sync=False)\n'
    )
    assert place.left() == {"log/deep/0": b"x" * 70_000}


def test_names_are_left_as_their_directory_or_their_file_was_synced(place: Place) -> None:
    place.run(
        'write("old", b"1"); write("gone", b"2"); write("empty", b"3", sync=False); sync_names()\n'
        'os.rename("old", "new"); os.remove("gone")\n'
    )
    assert place.left() == {"old": b"1", "gone": b"2", "empty": b""}
    place.run('os.rename("old", "new"); os.remove("gone"); sync_names()')
    assert place.left() == {"new": b"1", "empty": b""}
    place.run('os.rename("new", "newer"); write("newer", b"+")')
    assert place.left() == {"newer": b"1+", "empty": b""}, "the sync of a file keeps its name"


def test_a_file_that_was_cut_or_written_over_is_left_as_at_its_last_sync(place: Place) -> None:
    place.run(
        'write("a", b"long" * 50_000)\n'
        'os.truncate("a", 5); write("a", b"!")\n'
        'file = open("a", "r+b", buffering=0); file.write(b"L"); os.fsync(file.fileno())\n'
        'file.write(b"unsynced")\n'
    )
    assert place.left() == {"a": b"Longl!"}


def test_a_file_that_was_made_without_a_name_is_left_under_the_one_it_was_given(
    place: Place,
) -> None:
    place.run(
        'made = os.open(".", os.O_RDWR | os.O_TMPFILE)\n'
        'os.link(f"/proc/self/fd/{made}", "next", src_dir_fd=made); sync_names()\n'
        'os.write(made, b"12"); os.fdatasync(made); os.write(made, b"3")\n'
    )
    assert place.left() == {"next": b"12"}


def test_a_length_is_left_that_was_asked_for_before_the_name_was_synced(place: Place) -> None:
    place.run(
        'made = os.open("next", os.O_RDWR | os.O_CREAT)\n'
        'os.posix_fallocate(made, 0, 8192); sync_names(); os.write(made, b"unsynced")\n'
        'grown = os.open("queue", os.O_RDWR | os.O_CREAT); os.ftruncate(grown, 10); sync_names()\n'
    )
    assert place.left() == {"next": bytes(8192), "queue": bytes(10)}


def test_a_directory_keeps_its_entries_when_it_is_renamed_and_another_has_none(
    place: Place,
) -> None:
    place.run(
        'os.mkdir("d"); write("d/a", b"1"); os.rename("d", "e"); os.mkdir("d"); sync_names()\n'
        'write("f", b"2")\n'
    )
    assert place.left() == {"e/a": b"1", "f": b"2"}


def test_power_is_not_cut_where_something_could_not_be_kept(place: Place) -> None:
    place.run(
        "import resource\n"
        'last = os.open("a", os.O_RDWR | os.O_CREAT)\n'
        "resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, last + 1)); os.fsync(last)\n"
    )
    with pytest.raises(NodeFailedError, match="Too many open files"):
        place.left()


def test_a_node_without_the_library_cannot_be_hurt(place: Place) -> None:
    place.machines.environment("a")
    for hurt in (place.machines.cut_power, place.machines.lie_about_syncs):
        with pytest.raises(NodeFailedError, match="log"):
            hurt("a")


def test_nothing_is_preloaded_from_a_directory_with_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compiled", COMPILED)
    found = machines(tmp_path / "my drill", {"a": tmp_path / "a"}, keeps=True)
    with pytest.raises(NotPossibleError, match="space"):
        found.set_clock("a", 1.0)


def test_a_mapping_is_left_as_it_was_flushed(place: Place) -> None:
    place.run(
        "import mmap\n"
        'write("a", bytes(8192))\n'
        'file = open("a", "r+b"); mapped = mmap.mmap(file.fileno(), 8192)\n'
        'mapped[:2] = b"ab"; mapped[4096:4098] = b"cd"; mapped.flush(4096, 4096)\n'
    )
    assert place.left() == {"a": bytes(4096) + b"cd" + bytes(4094)}


def test_a_whole_file_system_is_kept_by_one_call(place: Place) -> None:
    place.run(
        "import ctypes\n"
        'os.makedirs("d/e"); write("d/e/a", b"1", sync=False); write("b", b"2", sync=False)\n'
        'assert ctypes.CDLL(None).syncfs(os.open(".", os.O_RDONLY)) == 0\n'
        'write("b", b"3", sync=False)\n'
    )
    assert place.left() == {"d/e/a": b"1", "b": b"2"}


def test_what_is_there_when_a_machine_starts_stays(place: Place) -> None:
    place.store.mkdir(parents=True)
    (place.store / "before").write_bytes(b"1")
    place.run("")
    assert place.left() == {"before": b"1"}
    place.run('write("more", b"2", sync=False)')
    assert place.left() == {"before": b"1"}, "and what a loss of power has left"


def test_the_end_of_a_process_takes_nothing_and_keeps_nothing(place: Place) -> None:
    place.run('write("a", b"1"); write("a", b"2", sync=False)')
    assert (place.store / "a").read_bytes() == b"12"
    place.run("")
    assert place.left() == {"a": b"1"}


def test_a_node_sees_another_boot_after_a_loss_of_power(place: Place) -> None:
    ask = 'print(open("/proc/sys/kernel/random/boot_id").read(), end="")'
    real = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert place.run(ask) == real
    place.machines.cut_power("a")
    place.machines.cut_power("a")
    first = place.run(ask)
    place.machines.cut_power("a")
    assert len({real, first, place.run(ask)}) == 3


def test_what_was_done_to_a_node_is_counted_where_it_is_done(place: Place) -> None:
    look = "import time; time.time()\n"
    place.run(look + 'write("a", b"1")')
    assert place.machines.felt("a") == Felt()

    place.machines.slow_syncs("a", 0.01)
    place.run(look + 'write("a", b"2"); write("a", b"3")')
    place.machines.slow_syncs("a", 0.0)
    place.run('write("a", b"4")')
    assert place.machines.felt("a") == Felt(syncs_delayed=2)

    place.machines.set_clock("a", -5.0)
    place.run(look)
    place.machines.set_clock("a", 0.0)
    wrong = place.machines.felt("a").times_wrong
    assert wrong >= 1
    place.run(look)
    place.machines.lie_about_syncs("a")
    place.run('write("a", b"5")')
    assert place.machines.felt("a") == Felt(syncs_delayed=2, times_wrong=wrong, syncs_forgotten=1)


def test_syncs_elsewhere_are_neither_delayed_nor_counted(place: Place, tmp_path: Path) -> None:
    place.run("")
    place.machines.slow_syncs("a", 30.0)
    place.run(f"write({str(tmp_path / 'elsewhere')!r}, b'1')")
    assert place.machines.felt("a") == Felt()


def test_a_loss_of_power_says_how_much_it_took(place: Place) -> None:
    place.run('write("a", b"1"); write("a", b"2", sync=False); write("b", b"3", sync=False)')
    assert place.machines.cut_power("a") == 2
    assert place.machines.cut_power("a") == 0, "there is nothing more to take"
    place.run("")
    assert place.machines.cut_power("a") == 0, "all of it was there when the machine started"


@pytest.mark.usefixtures("_library")
def test_where_power_is_not_cut_nothing_is_kept_and_all_else_can_be_done(tmp_path: Path) -> None:
    place = Place(tmp_path, keeps=False)
    place.run('write("a", b"1"); sync_names()')
    place.machines.slow_syncs("a", 0.01)
    place.run('write("a", b"2")')
    assert place.machines.felt("a") == Felt(syncs_delayed=1)
    machine = tmp_path / "machines" / "a"
    assert [path.name for path in machine.iterdir()] == ["control"]
    with pytest.raises(NotPossibleError):
        place.machines.cut_power("a")
    assert (place.store / "a").read_bytes() == b"12"


def test_half_of_a_first_copy_is_none(place: Place, tmp_path: Path) -> None:
    """A node was killed while what was there was copied: `disk` has its name once it is whole."""
    place.store.mkdir(parents=True)
    for number in range(300):
        (place.store / f"before-{number}").write_bytes(b"1")
    given = [f"{name}={value}" for name, value in place.machines.environment("a").items()]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 0; exec env "$@"', "sh", *given, sys.executable, "-c", ""],
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == -signal.SIGXFSZ, "it was killed at the first byte of its copy"
    machine = tmp_path / "machines" / "a"
    assert not (machine / "disk").exists()
    assert len(list(machine.glob("disk.*"))) == 1
    with pytest.raises(NodeFailedError):
        place.machines.cut_power("a")

    place.run("")

    assert not list(machine.glob("disk.*"))
    assert len(place.left()) == 300


def test_a_clock_is_set_ahead_back_and_right_while_a_node_runs(place: Place) -> None:
    ask = "import time; print(time.time(), time.clock_gettime(time.CLOCK_MONOTONIC))"
    place.run("")
    for ahead in (3_600.0, -3_600.0, 0.0):
        place.machines.set_clock("a", ahead)
        before = place_times()
        wall, monotonic = map(float, place.run(ask).split())
        after = place_times()
        assert before[0] <= wall - ahead <= after[0]
        assert before[1] <= monotonic <= after[1]


def place_times() -> tuple[float, float]:
    return time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)


def test_syncs_take_longer_and_are_kept(place: Place) -> None:
    ask = 'import time; begun = time.monotonic(); write("a", b"1")\nprint(time.monotonic() - begun)'
    place.run("")
    place.machines.slow_syncs("a", 0.2)
    assert float(place.run(ask)) >= 0.2
    assert place.left() == {"a": b"1"}


def test_a_disk_that_lies_keeps_nothing(place: Place) -> None:
    place.run('write("a", b"1")')
    place.machines.lie_about_syncs("a")
    place.run('write("a", b"2"); write("b", b"3"); sync_names()')
    assert place.left() == {"a": b"1"}


def test_another_disk_is_kept_as_it_is_at_the_next_start(place: Place) -> None:
    place.run('write("a", b"1")')
    (place.store / "a").unlink()
    (place.store / "b").write_bytes(b"2")
    place.machines.new_disk("a")
    place.machines.cut_power("a")
    assert (place.store / "b").exists(), "nothing was written since"
    place.run("")
    assert place.left() == {"b": b"2"}


def test_without_a_compiler_or_with_one_that_fails_nothing_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compiled", COMPILED)
    broken = tmp_path / "bin" / "cc"
    broken.parent.mkdir()
    monkeypatch.setenv("PATH", str(broken.parent))
    without = machines(tmp_path / "m", {"a": tmp_path / "a"}, keeps=True)
    broken.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    broken.chmod(0o755)
    failing = machines(tmp_path / "m", {"a": tmp_path / "a"}, keeps=True)

    for found, words in ((without, "compiler"), (failing, "no such header")):
        assert found.environment("a") == {}
        found.new_disk("a")
        for hurt in (found.cut_power, found.lie_about_syncs):
            with pytest.raises(NotPossibleError, match=words):
                hurt("a")


@pytest.mark.usefixtures("_library")
async def test_a_node_of_ours_is_started_on_the_machine_of_its_name(tmp_path: Path) -> None:
    started: list[Any] = []

    async def open_node(command: Sequence[str], log: IO[bytes], environment: dict[str, str]) -> Any:  # noqa: ANN401 - no process
        started.append((list(command), environment))

    stores = {"a": tmp_path / "a", "b": tmp_path / "b"}
    opened = Machines(tmp_path / "m", stores).opening(open_node)
    await opened(["node", "--name", "b"], io.BytesIO(), {"HOME": "/"})

    ((command, environment),) = started
    assert command == ["node", "--name", "b"]
    assert environment["HOME"] == "/"
    assert environment[module.STORE_VARIABLE] == str(tmp_path / "b")
    assert Path(environment[module.MACHINE_VARIABLE], "control").exists()
    assert (tmp_path / "b").is_dir()
