"""The file of a deployed cluster: what is read, and what is refused with its line."""

from pathlib import Path
from typing import Any

import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.drill.errors import BadOptionsError
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets.process_file import Kind, read_process_file
from tandem.tls_files import TLSFiles
from tests.tandem.drill.targets.process_samples import COMMANDS, document, read, write

NODE = {"name": "a", "address": "127.0.0.1", "port": 10911, "store": "a"}
OTHER = {"name": "b", "address": "127.0.0.1", "port": 10921, "store": "b"}


def test_a_node_has_the_commands_of_all_and_its_own_before_them(tmp_path: Path) -> None:
    own = {**NODE, "commands": {"start": "start a"}}
    found = read(tmp_path, nodes=[own, OTHER])

    first, second = found.nodes
    assert first.commands.start == "start a"
    assert first.commands.find == second.commands.find == "cat $NODE.pid"
    assert second.commands.start == "true"
    assert first.store == tmp_path / "a"
    assert first.client_address == "127.0.0.1:10911"
    assert found.kind is Kind.CLASSIC


def test_a_fault_is_possible_if_every_node_has_both_of_its_commands(tmp_path: Path) -> None:
    assert read(tmp_path).faults == {Fault.KILL, Fault.STOP, Fault.FREEZE}
    without = {key: text for key, text in COMMANDS.items() if key != "resume"}
    assert Fault.FREEZE not in read(tmp_path, commands=without).faults
    one = {**NODE, "commands": {"cut": "x", "heal": "y"}}
    assert Fault.CUT_OFF not in read(tmp_path, nodes=[one, OTHER]).faults
    both = {**COMMANDS, "cut": "x", "heal": "y"}
    assert Fault.CUT_OFF in read(tmp_path, commands=both).faults


def test_orders_to_a_fenced_group_need_its_secret(tmp_path: Path) -> None:
    assert Fault.RESIGN not in read(tmp_path, kind="fenced").faults
    found = read(tmp_path, kind="fenced", secret_file="secret")
    assert {Fault.RESIGN, Fault.PROMOTE} <= found.faults
    assert found.secret_file == tmp_path / "secret"


def test_who_the_drill_is_and_whom_it_trusts_are_files_beside_it(tmp_path: Path) -> None:
    assert read(tmp_path).tls is None
    assert read(tmp_path).secret_key_file is None
    trusting = read(tmp_path, ca_file="tls/ca.pem")
    assert trusting.tls == TLSFiles(str(tmp_path / "tls/ca.pem"))
    found = read(
        tmp_path,
        ca_file="ca.pem",
        certificate_file="me.pem",
        key_file="/elsewhere/me.key",
        access_key="me",
        secret_key_file="me.secret",
    )
    assert found.tls is not None
    assert found.tls.certificate_file == str(tmp_path / "me.pem")
    assert found.tls.key_file == "/elsewhere/me.key"
    assert (found.access_key, found.secret_key_file) == ("me", tmp_path / "me.secret")


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "raft"}, "kind"),
    ({"kind": None}, "kind"),
    ({"group": "a b"}, "group"),
    ({"unknown": 1}, "unknown"),
    ({"name_servers": []}, "name_servers"),
    ({"name_servers": ["127.0.0.1"]}, "name_servers"),
    ({"name_servers": ["127.0.0.1:99999"]}, "name_servers"),
    ({"name_servers": "127.0.0.1:9876"}, "name_servers"),
    ({"kind": "rocketmq-controller"}, "controllers"),
    ({"settings": {"a": "b"}}, "settings"),
    (
        {"kind": "rocketmq-classic", "settings": {"inSyncReplicas": "two"}},
        "settings.inSyncReplicas",
    ),
    (
        {"kind": "rocketmq-classic", "settings": {"minInSyncReplicas": "two"}},
        "settings.minInSyncReplicas",
    ),
    ({"commands": {**COMMANDS, "explode": "x"}}, "commands.explode"),
    ({"commands": {**COMMANDS, "find": "a\nb"}}, "commands.find"),
    ({"commands": {"start": "x"}}, "nodes[0]"),
    ({"commands": {**COMMANDS, "fetch": "x"}}, "nodes[0]"),
    ({"commands": ["x"]}, "commands"),
    ({"command_seconds": 0}, "command_seconds"),
    ({"access_key": "me"}, "access_key"),
    ({"secret_key_file": "x"}, "secret_key_file"),
    ({"ca_file": "ca", "key_file": "x"}, "key_file"),
    ({"ca_file": "ca", "certificate_file": "x"}, "certificate_file"),
    ({"certificate_file": "x", "key_file": "y"}, "ca_file"),
    (
        {"kind": "rocketmq-controller", "controllers": ["127.0.0.1:1"], "ca_file": "ca"},
        "ca_file",
    ),
    ({"patience": "x"}, "patience"),
    ({"nodes": None}, "nodes"),
    ({"nodes": []}, "nodes"),
    ({"nodes": "x"}, "nodes"),
    ({"nodes": ["x", "y"]}, "nodes[0]"),
    ({"nodes": [NODE]}, "nodes"),
    ({"nodes": [NODE, NODE]}, "nodes[1].name"),
    ({"nodes": [NODE, {**OTHER, "store": "a"}]}, "nodes[1].store"),
    ({"nodes": [NODE, {**OTHER, "port": 10911}]}, "nodes[1].port"),
    ({"nodes": [NODE, {**OTHER, "store": ""}]}, "nodes[1]"),
    ({"nodes": [NODE, {**OTHER, "port": 0}]}, "nodes[1].port"),
    ({"nodes": [NODE, {**OTHER, "address": "-x"}]}, "nodes[1].address"),
    ({"nodes": [NODE, {**OTHER, "commands": {"find": ["x"]}}]}, "nodes[1].commands.find"),
]


@pytest.mark.parametrize(("changes", "key"), HOSTILE)
def test_what_cannot_be_meant_is_named_with_its_line(
    changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    file = write(tmp_path, document(**changes))

    with pytest.raises(ClusterConfigError) as refused:
        read_process_file(file)

    assert all(problem.startswith(f"{file}:") for problem in refused.value.problems)
    assert any(f": {key}: " in problem for problem in refused.value.problems)


@pytest.mark.parametrize("text", ["", "7", "- a", "a: [", "[" * 5_000, "{a: 1, a: 2}", "\0"])
def test_what_is_no_such_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ClusterConfigError):
        read_process_file(file)


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(BadOptionsError) as refused:
            read_process_file(place)
        assert str(place) in str(refused.value)


def test_two_names_of_one_store_are_one_store(tmp_path: Path) -> None:
    """It would be compared with itself, and be equal whatever is in it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ClusterConfigError, match=r"nodes\[1\].store"):
        read(tmp_path)
