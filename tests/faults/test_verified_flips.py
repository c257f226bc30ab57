"""One byte changes in a file of each kind: `tandem log verify` names it, and its remedy works.

The store is one that real nodes have written, of a fenced group, and is down. Each remedy is done
as it is said: a command, a file that is removed, or the next start.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.client import Admin
from tandem.cluster import ClusterSpec, CoordinatorStartError
from tandem.cluster_file.secret_file import SecretFileError
from tests.faults.real_group import NODES, PATIENT, Group, PatientCluster, under_load, write_group
from tests.support.patience import until

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NODE, OTHER, _ = NODES

FILE_BYTES: Final = 262_144
FIRST_LOG: Final = f"commitlog/{0:020d}"
SECOND_LOG: Final = f"commitlog/{FILE_BYTES:020d}"
GROUP_FILE: Final = "config/groupJournal.json"
QUEUE: Final = f"consumequeue/Orders/0/{0:020d}"
BIG_BODY: Final = "\0" * 1_000
"""With what a body of `send_big` begins, wherever among the others it is."""

FROM_OTHER: Final = ("log", "repair", NODE, "--from", OTHER, "--write")
REPAIR: Final = ("log", "repair", NODE, "--write")
SIZES: Final = ("--max-hash-slot-num", "5000", "--max-index-num", "20000")

BY_COMMAND: Final[list[tuple[str, str, int | str, str, tuple[str, ...]]]] = [
    ("a length", FIRST_LOG, 0, "record-corrupt", FROM_OTHER),
    ("a body", SECOND_LOG, BIG_BODY, "record-crc", FROM_OTHER),
    (
        "a property, which no record's checksum covers",
        SECOND_LOG,
        "UNIQ",
        "block-changed",
        FROM_OTHER,
    ),
    ("a place in a unit", QUEUE, 20 * 3 + 6, "unit-", REPAIR),
    ("a size in a unit", QUEUE, 20 * 4 + 11, "unit-", REPAIR),
    ("a tags code in a unit", QUEUE, 20 * 5 + 15, "unit-wrong", REPAIR),
    ("a time in an index header", "index/*", 6, "index-header", REPAIR),
    ("how many slots are used", "index/*", 35, "index-settings", (*REPAIR, *SIZES)),
]
"""What changes, in which file, at which byte or text, what is found, and the command named."""

BY_THE_NEXT_START: Final = [
    ("checkpoint", 6, "checkpoint-changed", 0),
    ("replica.json", 20, "replica-file", 1),
    ("epochFileCheckpoint", 0, "epoch-copy", 0),
    ("epochIds.bak", 5, "epoch-copy", 0),
    (GROUP_FILE, 90, "group-file", 1),
    ("config/topics.json", 50, "table-changed", 1),
    ("config/topics.json.crc", 15, "table-checksum", 0),
    ("log-start.json", 10, "start-file", 1),
    ("queues.json", 10, "queue-note", 0),
    ("scrub.json", 20, "progress-file", 0),
    (f"fingerprints/{FILE_BYTES:020d}", 40, "fingerprint-file", 1),
    ("../coordinator/journal", 30, "coordinator-copy", 0),
]
"""File, byte, what is found, and the exit status."""


def flip(path: Path, place: int | str) -> None:
    """Change a bit; the disk says that nobody has written the file."""
    data, times = bytearray(path.read_bytes()), path.stat()
    data[place if isinstance(place, int) else data.index(place.encode())] ^= 0x10
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class Directory:
    """The data of a group whose nodes are down, and the commands of an operator."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.root = spec.data_directory

    def tandem(self, *words: str) -> Result:
        """Run a command; the name of a node stands for its directory."""
        line = [
            str(self.root / word) if word in (*NODES, "coordinator") else word for word in words
        ]
        return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")

    def file(self, name: str) -> Path:
        """Return a file of the node, the only one that fits the name."""
        (found,) = (self.root / NODE).glob(name) if "*" in name else [self.root / NODE / name]
        return found.resolve()

    def is_sound(self) -> bool:
        done = self.tandem("log", "verify", NODE)
        return done.exit_code == 0 and done.stdout.splitlines()[-1] == "sound"

    def expect(self, kind: str, path: Path, status: int) -> str:
        """Have `verify` name what is found in a file; return what it prints."""
        done = self.tandem("log", "verify", NODE)
        named = [line for line in done.stdout.splitlines() if str(path) in line]
        assert named, (path, done.stdout)
        assert f": {kind}" in done.stdout, (path, done.stdout)
        assert "  remedy: " in done.stdout
        assert done.exit_code == status, done.stdout
        return done.stdout


@asynccontextmanager
async def running(spec: ClusterSpec) -> AsyncIterator[Group]:
    async with PatientCluster(spec) as cluster, Admin(spec.name_servers) as admin:
        await cluster.start()
        yield Group(spec, cluster, admin)


async def written(spec: ClusterSpec) -> None:
    """Have nodes write all files that there are."""
    async with under_load(spec) as group:
        await group.send_big()
        # However long a look at all disks takes: the messages of minutes need another index file.
        await group.rest()
        for node in NODES:
            await group.becomes_whole(node)
        names = ("config/topics.json", "config/groupJournal.json", "scrub.json")
        directory = spec.node(NODE).directory
        await until(lambda: all((directory / name).exists() for name in names))
        group.go_on()


def heal_by_commands(data: Directory) -> None:
    for what, name, place, kind, command in BY_COMMAND:
        path = data.file(name)
        flip(path, place)
        said = data.expect(kind, path, 1)
        assert "tandem log repair" in said or "--max-hash-slot-num" in said, what
        done = data.tandem(*command)
        assert done.exit_code == 0, (what, done.output)
        assert data.is_sound(), (what, data.tandem("log", "verify", NODE).stdout)

    # Without another copy a header may be kept as it is.
    path = data.file(FIRST_LOG)
    flip(path, "UNIQ")
    said = data.expect("block-changed", path, 1)
    assert "remove the file of the same name in fingerprints/" in said
    data.file(f"fingerprints/{0:020d}").unlink()
    assert data.tandem(*REPAIR).exit_code == 0
    assert data.is_sound()


async def heal_by_the_next_start(data: Directory, spec: ClusterSpec) -> None:
    for name, place, kind, status in BY_THE_NEXT_START:
        path = data.file(name)
        before, times = path.read_bytes(), path.stat()
        flip(path, place)
        data.expect(kind, path, status)
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Where the group's file is lost, the tables are what the node goes by.
    lost = [row for row in BY_THE_NEXT_START if row[0] == GROUP_FILE]
    for rows in ([row for row in BY_THE_NEXT_START if row not in lost], lost):
        for name, place, _, _ in rows:
            flip(data.file(name), place)
        async with running(spec) as group:
            await group.in_sync(len(NODES))
            for node in NODES:
                await group.becomes_whole(node)
        assert data.is_sound(), data.tandem("log", "verify", NODE).stdout


async def heal_the_coordinator(data: Directory, spec: ClusterSpec) -> None:
    """A record and its copy have changed: what the coordinator knows has to be recovered."""
    journal = data.root / "coordinator" / "journal"
    size = int.from_bytes(journal.read_bytes()[:4], "big")
    flip(journal, 12)
    flip(journal, 8 + size + 12)
    done = data.tandem("log", "verify", "coordinator")
    assert done.exit_code == 1
    assert f"{journal}: position 0: " in done.stdout
    assert "`tandem ha recover-group GROUP`" in done.stdout
    assert "coordinator-journal" in data.expect("coordinator-journal", journal, 1)
    with pytest.raises(CoordinatorStartError, match="recover-group"):
        async with running(spec):
            pass
    journal.unlink()
    async with running(spec) as group:
        await group.all_say("recover-group")
        assert (await group.recover()).returncode == 0
        await group.in_sync(len(NODES))
    assert data.tandem("log", "verify", "coordinator").exit_code == 0
    assert data.is_sound()


async def heal_the_secret(data: Directory, spec: ClusterSpec) -> None:
    secret = spec.secret_file
    kept = secret.with_name("a copy")
    shutil.copy(secret, kept)
    flip(secret, 10)
    assert "tandem cluster credentials" in data.expect("secret-file", secret, 1)
    with pytest.raises(SecretFileError, match="copy it there from another machine"):
        async with running(spec):
            pass
    kept.replace(secret)
    assert data.is_sound()
    secret.unlink()
    async with running(spec) as group:
        await group.in_sync(len(NODES))
    assert data.is_sound()


@pytest.mark.timeout(900)
async def test_a_byte_of_each_kind_is_found_and_its_remedy_works(tmp_path: Path) -> None:
    spec = write_group(tmp_path, coordinator=PATIENT)
    await written(spec)
    data = Directory(spec)
    assert data.is_sound(), data.tandem("log", "verify", NODE).stdout
    heal_by_commands(data)
    await heal_by_the_next_start(data, spec)
    await heal_the_coordinator(data, spec)
    await heal_the_secret(data, spec)
