"""Fenced groups of real nodes on a real etcd, under load, while one of them is hurt.

Whatever happens to etcd: nothing acknowledged is lost, there is no needless change of master, and
nobody becomes master on records that were set back until an operator has said so.
"""

import json
import secrets
import shutil
from pathlib import Path

import pytest
import trio

from tandem.coordinator.interface import CoordinatorRefusedError, Delete, Put
from tandem.wire.group_state import decode_state
from tests.faults.etcd_world import (
    LEASE_ENDS_SECONDS,
    back_up,
    check_recovered,
    client_of,
    coordinator,
    frozen,
    heal_coordinator,
    hurt_coordinator,
    make_room,
    on_etcd,
    restore,
    switch,
)
from tests.faults.real_group import KEYS, NODES, PRODUCERS, Group, under_load, write_group
from tests.support.patience import until
from tests.support.secret import write_secret
from tests.tandem.coordinator.real_etcd import (
    add_user,
    find_leader,
    make_certificates,
    protect,
    running_etcd,
)

pytestmark = [pytest.mark.fault, pytest.mark.slow]

# --- the nodes are hurt ------------------------------------------------------------------------


async def test_a_killed_master_is_replaced_over_tls_and_with_a_password(tmp_path: Path) -> None:
    ca, server, _ = make_certificates(tmp_path)
    write_secret(tmp_path / "password", "s3cret\n")
    arguments = [f"--cert-file={server}.crt", f"--key-file={server}.key", "--auth-token-ttl=2"]
    with running_etcd(tmp_path, scheme="https", arguments=arguments) as members:
        members[0].ca_file = f"{ca}.crt"
        await members[0].wait_healthy()
        await add_user(members[0], "tandem", "s3cret", "/tandem/")
        await protect(members[0], "root", "another secret")
        settings = {"user": "tandem", "password_file": "password", "ca_file": "ca.crt"}
        spec = write_group(tmp_path, coordinator=coordinator(members) | settings)
        async with under_load(spec) as group:
            killed = await group.master()
            await group.cluster.kill(killed)
            assert await group.master(not_this=killed) != killed
            await group.acked_more()
    assert not spec.coordinator_directory.exists()


async def test_nodes_wait_for_an_etcd_that_comes_later_and_say_so(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as members:
        members[0].kill()

        async def start_etcd_now(group: Group) -> None:
            words = f"no connection to {members[0].endpoint}: Connection refused"
            await group.all_say(words)
            assert group.cluster.coordinator_trouble == words

            def have_logged_it() -> bool:
                logs = [group.cluster.log_file(name).read_text() for name in NODES]
                return all(f"coordinator: {words}" in log for log in logs)

            await until(have_logged_it)
            members[0].start()

        spec = write_group(tmp_path, coordinator=coordinator(members))
        async with under_load(spec, start_etcd_now) as group:
            roles = {"MASTER", "FOLLOWER"}
            # The cluster asks etcd, too, and again half a second after it was not there.
            await until(lambda: {node.role for node in group.cluster.status()} == roles)


@pytest.mark.long
async def test_a_group_moves_from_the_embedded_coordinator_to_etcd(tmp_path: Path) -> None:
    """As docs/etcd.md says: nobody is master there until an operator has said so."""
    async with under_load(write_group(tmp_path, coordinator=coordinator([]))) as group:
        pass
    with running_etcd(tmp_path) as members:
        await members[0].wait_healthy()
        spec = write_group(tmp_path, coordinator=coordinator(members))

        async def recover_there(moved: Group) -> None:
            moved.sent |= group.sent
            await moved.nobody_is_master(3)
            await moved.all_say("tandem ha recover-group")
            assert (await moved.recover()).returncode == 0

        async with under_load(spec, recover_there, first_producer=PRODUCERS) as moved:
            moved.acked |= group.acked


@pytest.mark.long
async def test_a_frozen_master_is_replaced_when_its_lease_in_etcd_ends(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, _):
        master = await group.master()
        group.cluster.pause(master)
        assert await group.master(not_this=master) != master
        await group.acked_more()
        group.cluster.resume(master)


# --- etcd is hurt ------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_killed_leader_of_etcd_makes_no_other_master(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        for _ in range(3):
            leader = await find_leader(members)
            leader.kill()
            await trio.sleep(LEASE_ENDS_SECONDS)
            await group.acked_more()
            leader.start()
            await leader.wait_healthy()
        assert await group.epoch() == epoch


@pytest.mark.long
async def test_a_frozen_leader_of_etcd_makes_no_other_master_while_it_is_frozen(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        leader = await find_leader(members)
        with frozen(leader):
            await trio.sleep(2 * LEASE_ENDS_SECONDS)
            await group.acked_more()
            assert await group.epoch() == epoch
        await trio.sleep(2)
        # Before 3.4.31 and 3.5.13, a leader that wakes up ends all leases that it believes to be
        # over (issue 15247 of etcd): that costs one election.
        assert await group.epoch() <= epoch + 1


@pytest.mark.long
async def test_without_a_majority_of_etcd_nobody_is_master_until_it_is_back(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        for member in members[:2]:
            member.kill()
        await group.no_master()
        await group.nobody_is_master(3)
        await group.all_say("coordinator: ")
        for member in members[:2]:
            member.start()
        await group.acked_more()
        assert await group.epoch() == epoch + 1


@pytest.mark.long
async def test_compaction_and_defragmentation_of_etcd_are_not_noticed(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        async with client_of(members[0]) as client:
            for _ in range(10):
                revision = (await client.read(KEYS.prefix)).revision
                request = json.dumps({"revision": str(revision), "physical": True})
                # To compact what is compacted already is an error.
                await client.transact([], [Put("/other", b"")])
                await members[0].post("/v3/kv/compaction", request.encode())
                for member in members:
                    await member.post("/v3/maintenance/defragment", b"{}")
                await trio.sleep(0.5)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
async def test_an_etcd_that_is_slow_makes_no_other_master(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        epoch = await group.epoch()
        for _ in range(15):
            with frozen(members[0]):
                await trio.sleep(0.9)
            await trio.sleep(0.1)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
async def test_an_etcd_without_space_takes_no_change_and_ends_nobody(tmp_path: Path) -> None:
    arguments = ["--quota-backend-bytes=4194304"]
    async with on_etcd(tmp_path, arguments=arguments) as (group, members):
        epoch, etcd = await group.epoch(), members[0]
        async with client_of(etcd) as client:
            with pytest.raises(CoordinatorRefusedError, match="space exceeded; compact and def"):
                while True:
                    await client.transact([], [Put("/other", secrets.token_bytes(1_000_000))])
            master = await group.master()
            slave = next(name for name in NODES if name != master)
            await group.cluster.kill(slave)
            # It cannot be taken out of the in-sync set, so nothing is acknowledged without it.
            await trio.sleep(LEASE_ENDS_SECONDS)
            assert await group.epoch() == epoch
            acked_count = len(group.acked)
            await trio.sleep(1)
            assert len(group.acked) == acked_count
            revision = (await client.read(KEYS.prefix)).revision
        await make_room(etcd, revision)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
@pytest.mark.parametrize("members_count", [1, 0], ids=["etcd", "embedded"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_only_coordinator_is_away_for_a_moment(
    members_count: int, how: str, tmp_path: Path
) -> None:
    async with on_etcd(tmp_path, members_count) as (group, members):
        epoch = await group.epoch()
        await hurt_coordinator(group, members, how)
        await trio.sleep(1.5)
        await group.acked_more()
        await heal_coordinator(group, members, how)
        await trio.sleep(LEASE_ENDS_SECONDS)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
@pytest.mark.parametrize("members_count", [1, 0], ids=["etcd", "embedded"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_only_coordinator_is_away_for_longer_than_a_lease(
    members_count: int, how: str, tmp_path: Path
) -> None:
    async with on_etcd(tmp_path, members_count) as (group, members):
        epoch = await group.epoch()
        await hurt_coordinator(group, members, how)
        await group.no_master()
        await group.all_say("coordinator: ")
        await heal_coordinator(group, members, how)
        await group.acked_more()
        assert await group.epoch() == epoch + 1


# --- its records are lost, or older than the logs ------------------------------------------------


@pytest.mark.long
async def test_an_etcd_that_lost_everything_has_no_master_until_an_operator_says_so(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        members[0].kill()
        shutil.rmtree(members[0].data_directory)
        members[0].start()
        await check_recovered(group)


@pytest.mark.long
async def test_a_deleted_record_has_no_master_until_an_operator_says_so(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        async with client_of(members[0]) as client:
            await client.transact([], [Delete(KEYS.state)])
        await check_recovered(group)


@pytest.mark.long
async def test_an_older_record_has_no_master_until_an_operator_says_so(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        async with client_of(members[0]) as client:
            before = (await client.read(KEYS.state)).values[KEYS.state].value
            await switch(group)
            await switch(group)
            await client.transact([], [Put(KEYS.state, before)])
        await check_recovered(group)


@pytest.mark.long
async def test_an_etcd_from_a_backup_has_no_master_until_an_operator_says_so(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        await group.acked_more()
        await switch(group)
        await switch(group)
        await restore(members[0], backup)
        await check_recovered(group)


@pytest.mark.long
async def test_a_backup_of_the_same_epoch_is_made_safe_by_deleting_its_records(
    tmp_path: Path,
) -> None:
    """What docs/etcd.md tells to do. The backup has a member that has missed much since."""
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        master = await group.master()
        behind = next(name for name in NODES if name != master)
        await group.cluster.kill(behind)
        await group.acked_more(200)
        await group.cluster.stop()
        await restore(members[0], backup)
        async with client_of(members[0]) as client:
            keys = (await client.read(KEYS.prefix)).values
            assert behind in decode_state(keys[KEYS.state].value).isr
            await client.transact([], [Delete(key) for key in keys])
        await group.cluster.start()
        await check_recovered(group)


@pytest.mark.long
async def test_a_master_elected_from_such_a_backup_cuts_nothing_and_is_put_aside(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        master = await group.master()
        behind, *rest = [name for name in NODES if name != master]
        await group.cluster.kill(behind)
        await group.acked_more(200)
        await trio.sleep(3)  # that all this is acknowledged is on the disks of the others
        await group.cluster.stop()
        await restore(members[0], backup)
        await group.cluster.start(behind)
        await group.has_role(behind, "OPENING")
        for name in (master, *rest):
            await group.cluster.start(name)
            await group.has_role(name, "QUARANTINED")
        await group.cluster.stop()
        store = group.spec.node(behind).directory
        store.rename(store.with_name("moved-away"))
        async with client_of(members[0]) as client:
            keys = (await client.read(KEYS.prefix)).values
            await client.transact([], [Delete(key) for key in keys])
        await group.cluster.start()
        await check_recovered(group)
