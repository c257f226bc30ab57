"""One byte changes in one file of a stopped node: its group goes on, and the node is whole again.

A file has several kinds of bytes: its first ones say what it is, in its middle is what it holds,
and the last ones that are used end it. One of each is changed in each file that there is.

    starts, and is in sync     what was changed was healed, relearned, built anew, or means nothing
    does not start             says which file, and the group goes on without it
    is quarantined             a byte of the last file of the log, which has no fingerprint yet: an
                               operator says whose log is right

Then nothing of it is left: `tandem log verify` finds no damage.
"""

from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tandem.cluster import NodeStartError
from tandem.log import open_store_directory, verify_store
from tests.faults.real_group import NODES, Group, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]

IN_THE_ORDINARY_RUN = ("commitlog/00000000000000000000", "replica.json", "checkpoint")

MEANS_NOTHING = ("lock", "abort")


def files_of(directory: Path) -> list[str]:
    """The files that a stopped node has, by their names below its directory, none of them empty."""
    names = [
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.stat().st_size
    ]
    files = [n for n in names if (directory / n).is_file() and n not in MEANS_NOTHING]
    last = max(n for n in files if n.startswith("commitlog/"))
    return sorted(files, key=lambda name: (name == last, name))


def places_in(path: Path) -> list[int]:
    """One byte of each kind: near the start, in the middle of what is used, and at its end."""
    used = len(path.read_bytes().rstrip(b"\0"))
    return sorted({0, 5, used // 2, max(0, used - 2)} & set(range(max(1, used))))


def flip(path: Path, position: int) -> bytes:
    """Change a bit; return what was in the file."""
    before = path.read_bytes()
    after = bytearray(before)
    after[position] ^= 0x10
    path.write_bytes(bytes(after))
    return before


def damage_of(directory: Path) -> list[str]:
    """What `tandem log verify` says is damaged in the store of a node that is stopped."""
    report = verify_store(open_store_directory(directory))
    return [
        f"{found.kind}: {found.file}: {found.what}"
        for found in report.findings
        if found.severity == "damage"
    ]


class Flips(NamedTuple):
    """What was changed; where the node did not start, with what it said; where it was set apart."""

    places: list[str]
    refused: list[str]
    quarantined: list[str]


async def attaches(group: Group, node: str) -> bool:
    """Wait until a node is in sync, or set apart for an operator to look."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            status = await group.status(await group.master())
            if status and {node} <= {r.name for r in status.replicas if r.connected and r.in_sync}:
                return True
            own = await group.status(node)
            if own is not None and own.role == "QUARANTINED":
                return False
            await trio.sleep(0.05)


async def flip_each(
    group: Group, node: str, names: tuple[str, ...] = (), *, places_max: int = 4
) -> Flips:
    """Change one byte after the other."""
    directory = group.spec.node(node).directory
    places: list[str] = []
    refused: list[str] = []
    quarantined: list[str] = []
    await group.rest()
    await group.cluster.kill(node)
    for name in names or files_of(directory):
        if not (directory / name).exists():
            continue
        for position in places_in(directory / name)[-places_max:]:
            places.append(f"{name} at {position}")
            before = flip(directory / name, position)
            await group.sends_some()
            try:
                await group.cluster.start(node)
            except NodeStartError as error:
                said = error.log_file.read_text().splitlines()[-1]
                refused.append(f"{name} at {position}: {said}")
                assert Path(name).name in said or name.partition("/")[0] in said, refused[-1]
                (directory / name).write_bytes(before)
                await group.cluster.start(node)
            if not await attaches(group, node):
                quarantined.append(places[-1])
                await group.rejoin(node)
                await group.in_sync(len(NODES))
            await group.becomes_whole(node)
            await group.sends_some()
            await group.cluster.kill(node)
            assert damage_of(directory) == [], places[-1]
            if not (directory / name).exists():
                break
    group.go_on()
    await group.cluster.start(node)
    return Flips(places, refused, quarantined)


async def closed_files_agree(group: Group, node: str) -> None:
    """Close the file that was open, and wait until the node has it as the others have.

    What no record's checksum covers is found then, where nodes compare fingerprints.
    """
    log = group.spec.node(node).directory / "commitlog"
    names = [path.name for path in sorted(log.iterdir())]
    await group.send_big()
    others = [group.spec.node(name).directory / "commitlog" for name in NODES if name != node]
    with trio.fail_after(PATIENCE_SECONDS):
        for name in names:
            while any((log / name).read_bytes() != (each / name).read_bytes() for each in others):
                await trio.sleep(0.1)


async def test_a_byte_that_changes_in_one_of_the_most_important_files_is_healed(
    tmp_path: Path,
) -> None:
    async with under_load(write_group(tmp_path)) as group:
        await group.send_big()
        master = await group.master()
        node = next(name for name in NODES if name != master)
        flips = await flip_each(group, node, IN_THE_ORDINARY_RUN, places_max=1)
        assert flips.refused == flips.quarantined == []


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_a_byte_that_changes_in_any_file_of_a_node_breaks_no_promise(tmp_path: Path) -> None:
    async with under_load(write_group(tmp_path)) as group:
        await group.send_big()
        master = await group.master()
        node = next(name for name in NODES if name != master)
        flips = await flip_each(group, node)
        print(f"{len(flips.places)} bytes in {len({p.split()[0] for p in flips.places})} files")  # noqa: T201 - what a run of minutes has done
        print(*flips.refused, *flips.quarantined, sep="\n")  # noqa: T201 - likewise
        assert all(place.startswith("commitlog/") for place in flips.quarantined)
        await closed_files_agree(group, node)
