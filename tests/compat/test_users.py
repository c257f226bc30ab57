"""Users of a cluster as RocketMQ's own programs: applications, and commands of mqadmin."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Final

import pytest

from tandem.client import BlockingAdmin, BlockingPullConsumer, ClusterAccess
from tandem.testing import running_fenced_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tests.compat.programs import classpath, java_command

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

    from tests.compat.conftest import StartJava

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

AUTHORIZED: Final = {"security": {"clients": "authorized"}}
SHOP, BANK = ("shop", "a secret of the shop"), ("bank", "a secret of the bank")


def said(probe: Popen[str]) -> str:
    assert probe.stdout is not None
    return probe.stdout.readline().strip()


def send(probe: Popen[str]) -> str:
    """Have a probe send a message; return what it says of that, its own arrivals passed over."""
    assert probe.stdin is not None
    probe.stdin.write(".")
    probe.stdin.flush()
    while (line := said(probe)).startswith("got"):
        pass
    return line


def test_applications_may_their_own_topics_and_an_end_is_one_at_once(
    tmp_path: Path, start_java: StartJava
) -> None:
    with running_fenced_cluster(tmp_path, settings=AUTHORIZED) as cluster:
        servers = ";".join(f"{node.address}:9876" for node in cluster.spec.nodes)
        with BlockingAdmin(cluster.access) as admin:
            for (name, secret), topic in ((SHOP, "shop-orders"), (BANK, "bank-orders")):
                admin.create_user(name, secret)
                rights = [
                    PolicyEntryInfo(f"Topic:{topic}", ["Pub", "Sub"], None, "Allow"),
                    PolicyEntryInfo(f"Group:{name}", ["Sub"], None, "Allow"),
                ]
                admin.grant(name, rights)
                admin.create_topic(topic, queue_nums=1)
            shop = start_java("UserProbe", servers, *SHOP, "shop-orders", "bank-orders", "shop")
            bank = start_java("UserProbe", servers, *BANK, "bank-orders", "shop-orders", "bank")
            for probe in (shop, bank):
                assert [said(probe) for _ in range(3)] == ["sent", "consumed", "refused 16"]
            # A third program: Python, with the rights of the shop and no others.
            access = ClusterAccess(cluster.name_servers, *SHOP)
            with BlockingPullConsumer(access, group="shop") as consumer:
                assert len(consumer.fetch_message_queues("shop-orders")) == 1
            cluster.kill_master()
            cluster.wait_for_master()
            deadline = time.monotonic() + 60
            while send(bank) != "sent":
                assert time.monotonic() < deadline
            admin.alter_user("shop", is_enabled=False)
            assert send(shop).startswith("failed")
            assert send(bank) == "sent"


MQADMIN: Final = """\
createUser -c {c} -u alice -p alicepassword
createUser -c {c} -u alice -p anotherpassword
updateUser -c {c} -u alice -s disable
getUser -c {c} -u alice
listUser -c {c}
createAcl -c {c} -s User:alice -r Topic:T1,Group:g1 -a Pub,Sub -d Allow -i 127.0.0.0/8
updateAcl -c {c} -s User:alice -r Topic:pre* -a All -d Deny
getAcl -c {c} -s User:alice
listAcl -c {c} -s alice -r T1
deleteAcl -c {c} -s User:alice -r Group:g1
listAcl -c {c}
deleteUser -c {c} -u alice
listUser -c {c}
"""


def test_mqadmins_commands_of_users_and_access_lists(tmp_path: Path) -> None:
    jars = classpath("pom.xml", "tools")
    with running_fenced_cluster(tmp_path, settings=AUTHORIZED) as cluster:
        root = ("root", "a secret of the root")
        with BlockingAdmin(cluster.access) as admin:
            admin.create_user(*root, is_super=True)
        home = tmp_path / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text(f"accessKey: {root[0]}\nsecretKey: {root[1]}\n")
        servers = ";".join(f"{node.address}:9876" for node in cluster.spec.nodes)

        def run(line: str) -> str:
            command = java_command(jars, home)
            command += ["org.apache.rocketmq.tools.command.MQAdminStartup", *line.split()]
            done = subprocess.run(
                [*command, "-n", servers],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env={"ROCKETMQ_HOME": str(home), "PATH": "/usr/bin:/bin"},
            )
            return done.stdout + done.stderr

        texts = [run(line) for line in MQADMIN.format(c=cluster.spec.name).splitlines()]
    assert "success" in texts[0]
    assert "The user is existed" in texts[1]
    assert "success" in texts[2]
    assert "alice" in texts[3]
    assert "disable" in texts[3]
    assert "root" in texts[4]
    assert "alicepassword" not in json.dumps(texts)
    assert root[1] not in json.dumps(texts)
    assert "success" in texts[5]
    assert "success" in texts[6]
    assert all(word in texts[7] for word in ("Topic:T1", "Group:g1", "Topic:pre*", "Deny"))
    assert "Topic:T1" in texts[8]
    assert "Group:g1" not in texts[8]
    assert "success" in texts[9]
    assert "Group:g1" not in texts[10]
    assert "Topic:pre*" in texts[10]
    assert "success" in texts[11]
    assert "alice" not in texts[12]
