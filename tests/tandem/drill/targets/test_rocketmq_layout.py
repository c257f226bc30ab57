import msgspec
import pytest

from tandem.cluster_file.choices import GroupKind
from tandem.drill.errors import BadOptionsError
from tandem.drill.targets.rocketmq_layout import OWN_KEYS, Mode, settings_of
from tests.tandem.drill.targets.rocketmq_samples import layout


def test_every_broker_has_ports_and_directories_of_its_own() -> None:
    found = layout().ports

    assert len(found) == len(set(found)) == 2 + 3 * 3
    assert len({port for _, port in found}) == len(found)
    assert len({node.directory for node in layout().group.nodes}) == 3


def test_a_group_with_a_controller_elects_and_the_others_have_a_master() -> None:
    assert layout().group.kind is GroupKind.FENCED
    classic = layout(Mode.SYNC_MASTER)
    assert classic.group.kind is GroupKind.CLASSIC
    roles = [classic.broker_properties(node)["brokerRole"] for node in classic.group.nodes]
    assert roles == ["SYNC_MASTER", "SLAVE", "SLAVE"]
    assert "enableControllerInNamesrv" not in classic.name_server_properties("name-server")
    assert (classic.base + ".1", 9878) not in classic.ports


def test_a_controller_group_has_the_settings_of_the_quick_start() -> None:
    one = layout(allAckInSyncStateSet="true")
    properties = one.broker_properties(one.group.nodes[0])

    assert properties["allAckInSyncStateSet"] == "true"
    assert [properties["controllerAddr"]] == one.controllers
    assert properties["brokerId"] == "-1"
    peers = one.name_server_properties("name-server")["controllerDLegerPeers"]
    assert peers == f"n0-{one.controllers[0]}"


def test_several_name_servers_have_a_controller_each_and_brokers_know_all() -> None:
    one = msgspec.structs.replace(layout(), name_server_count=3)
    assert len({*one.ports}) == len(one.ports) == 3 * 2 + 3 * 3
    assert {host for host, _ in one.ports}.issuperset(one.name_server_hosts.values())
    properties = one.broker_properties(one.group.nodes[0])
    assert properties["namesrvAddr"].split(";") == one.name_servers
    assert properties["controllerAddr"].split(";") == one.controllers
    each = [one.name_server_properties(name) for name in one.name_server_hosts]
    assert [found["controllerDLegerSelfId"] for found in each] == ["n0", "n1", "n2"]
    assert {found["controllerDLegerPeers"] for found in each} == {
        ";".join(f"n{number}-{address}" for number, address in enumerate(one.controllers))
    }
    assert len({found["controllerStorePath"] for found in each}) == 3
    assert [f"{found['bindAddress']}:{found['listenPort']}" for found in each] == one.name_servers


def test_what_the_user_gives_wins_over_what_the_mode_ships_with() -> None:
    found = settings_of(Mode.CONTROLLER, ["allAckInSyncStateSet=false", "inSyncReplicas=2"])

    assert found == {"allAckInSyncStateSet": "false", "inSyncReplicas": "2"}
    one = layout(Mode.CONTROLLER, **found, flushDiskType="SYNC_FLUSH")
    assert one.broker_properties(one.group.nodes[0])["flushDiskType"] == "SYNC_FLUSH"


@pytest.mark.parametrize(
    "text",
    ["", "x", "=1", "a b=1", "x=", "x=1\ny=2", *(f"{key}=1" for key in OWN_KEYS)],
)
def test_what_is_no_setting_or_is_the_drills_is_refused(text: str) -> None:
    with pytest.raises(BadOptionsError):
        settings_of(Mode.CONTROLLER, [text])
