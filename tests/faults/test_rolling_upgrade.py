"""A fenced group of real nodes under load goes to this version from the one before, and back.

One node after the other, with planned switches; both versions are in one group meanwhile. Nothing
acknowledged is lost, no send fails for good, and the group's level stays until it is raised. Then
the version before is kept out, and says what is needed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import trio

from tandem.cluster import NodeState
from tandem.cluster.spec import node_command
from tandem.wire.feature_level import LEVEL_MAX
from tandem.wire.ha_status import FencedCommand
from tests.faults.real_group import NODES, Group, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.previous_version import install_previous
from tests.support.processes import TANDEM

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
]

OLDER: Final = LEVEL_MAX - 1

START_SECONDS_MAX: Final = 900.0

PATIENT: Final = {"lease_ttl_ms": 30_000}
"""No master is to be replaced because this machine is busy: then what failed says nothing."""


class Versions:
    """Which version each node is started as."""

    def __init__(self, previous: Path) -> None:
        self._previous = previous
        self.of: dict[str, str] = dict.fromkeys(NODES, "previous")

    def command(self, file: Path, name: str) -> list[str]:
        """The command line of a node. Neither version is to find the other by PYTHONPATH."""
        command = node_command(file, name)
        if self.of[name] == "previous":
            return ["env", "-u", "PYTHONPATH", str(self._previous), *command[1:]]
        assert command[0] == sys.executable
        return command


async def tandem(group: Group, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of this version, as an operator would."""
    with trio.fail_after(PATIENCE_SECONDS):
        return await trio.run_process(
            [*TANDEM, *arguments, "-c", str(group.spec.file)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )


async def features(group: Group) -> dict[str, object]:
    """What `tandem ha features` says of the group."""
    done = await tandem(group, "ha", "features", "--format", "json")
    assert done.returncode == 0, done
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


async def change_version(group: Group, versions: Versions, name: str, version: str) -> None:
    """Stop a node, and start it as another version; a master hands over before that."""
    if await group.master() == name:
        other = next(node for node in NODES if node != name)
        order = FencedCommand(command="promote", node=other)
        with trio.fail_after(PATIENCE_SECONDS):
            while await group.master() == name:
                await group.try_order(name, order)
                await trio.sleep(0.5)
    await group.cluster.stop(name)
    versions.of[name] = version
    await group.cluster.start(name, ready_seconds_max=START_SECONDS_MAX)
    await group.in_sync(len(NODES))
    await group.acked_more()


async def check_mixed(group: Group, versions: Versions) -> None:
    """The group is at the level of its older members, and goes to no other by an order."""
    found = await features(group)
    assert found["level"] == OLDER
    refused = await tandem(group, "ha", "raise-features")
    assert refused.returncode == 1, refused
    old = [name for name, version in versions.of.items() if version == "previous"]
    master = await group.master()
    said = refused.stderr.decode()
    assert any(name in said for name in (old if versions.of[master] == "new" else [master])), said


async def test_a_group_is_upgraded_node_by_node_and_goes_back_and_on(tmp_path: Path) -> None:
    previous = await trio.to_thread.run_sync(install_previous, tmp_path)
    versions = Versions(previous)
    (tmp_path / "group").mkdir()
    spec = write_group(tmp_path / "group", coordinator=PATIENT)
    async with under_load(spec, command=versions.command) as group:
        for version in ("new", "previous", "new"):
            for name in NODES:
                await change_version(group, versions, name, version)
                if len(set(versions.of.values())) > 1:
                    await check_mixed(group, versions)
        # All have this version, and the level is that of the one before until somebody says so.
        assert (await features(group))["level"] == OLDER
        raised = await tandem(group, "ha", "raise-features")
        assert raised.returncode == 0, raised
        assert (await features(group))["level"] == LEVEL_MAX
        await group.acked_more()
        await the_previous_version_is_kept_out(group, versions)
        assert not group.failed, group.failed[:3]


async def the_previous_version_is_kept_out(group: Group, versions: Versions) -> None:
    master = await group.master()
    name = next(node for node in NODES if node != master)
    await group.cluster.stop(name)
    versions.of[name] = "previous"
    log = group.cluster.log_file(name)
    before = log.stat().st_size
    await group.cluster.start(name, ready_seconds_max=START_SECONDS_MAX)

    def says_what_is_needed() -> bool:
        said = log.read_bytes()[before:].decode()
        return f"feature level {LEVEL_MAX}" in said and "TandemMQ" in said

    await until(says_what_is_needed)
    await group.acked_more()
    assert name not in (await group.in_sync_names())
    if group.cluster.state(name) is NodeState.RUNNING:  # it may have ended by itself
        await group.cluster.stop(name)
    versions.of[name] = "new"
    await group.cluster.start(name, ready_seconds_max=START_SECONDS_MAX)
    await group.in_sync(len(NODES))
