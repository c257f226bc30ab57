from pathlib import Path

import msgspec
import pytest

from node.security.admission import Admission, NotAdmittedError, NotOwn
from tandem.cluster_file.settings import SecuritySettings
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.security.guarded_server import LEARNER, call, open_server, registration
from tests.node.world import cluster_config, fenced_cluster


async def test_a_learner_registers_itself_and_nothing_else(
    tmp_path: Path, autojump_clock: object
) -> None:
    code = RequestCode.REGISTER_BROKER
    async with open_server(tmp_path) as server:
        routes = server.names.routes
        async with server.client() as stranger:
            answer = await call(stranger, code, *registration())
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "security.rocketmq_brokers" in (answer.remark or "")
        async with server.client(LEARNER) as learner:
            for wrong in (
                registration(broker_id=0),
                registration(broker_id=2),
                registration("10.0.0.1:10911"),
                registration("10.0.0.8:10911"),
                registration(cluster="other"),
            ):
                answer = await call(learner, code, *wrong)
                assert answer.code == ResponseCode.NO_PERMISSION
            assert routes.cluster_info().broker_addr_table == {}
            assert (await call(learner, code, *registration())).code == 0
            assert routes.is_live(f"{LEARNER}:10911")
            # What the group's topics are, its own nodes say.
            assert routes.topics() == []
            leaving = UnregisterBrokerRequestHeader(
                "broker-a", f"{LEARNER}:10911", "DefaultCluster", 9
            )
            assert (await call(learner, RequestCode.UNREGISTER_BROKER, leaving)).code == 0
            assert not routes.is_live(f"{LEARNER}:10911")


def registered(address: str, broker_id: int, name: str = "broker-a") -> RemotingCommand:
    header, body = registration(address, broker_id)
    header = msgspec.structs.replace(header, broker_name=name)
    return RemotingCommand(RequestCode.REGISTER_BROKER, ext=header, body=body)


def test_in_a_classic_group_a_broker_takes_the_place_of_the_node_at_its_address(
    tmp_path: Path,
) -> None:
    config = cluster_config(tmp_path)
    security = SecuritySettings(rocketmq_brokers=["broker-a@10.0.0.2", "broker-b@10.0.0.5"])
    admission = Admission(msgspec.structs.replace(config, security=security))
    slave = registered("10.0.0.2:10911", 1)
    assert admission.own_registration(slave, "10.0.0.2") is slave
    other_cluster, body = registration("10.0.0.2:10911", 1, cluster="other")
    of_other = RemotingCommand(RequestCode.REGISTER_BROKER, ext=other_cluster, body=body)
    for wrong, ip, cause in (
        (registered("10.0.0.2:10911", 0), "10.0.0.2", NotOwn.BROKER_ID),
        (registered("10.0.0.3:10911", 2), "10.0.0.2", NotOwn.ADDRESS),
        (registered("10.0.0.3:10911", 2), "10.0.0.3", NotOwn.BROKER),
        (registered("10.0.0.2:10911", 1, "broker-b"), "10.0.0.2", NotOwn.BROKER),
        (of_other, "10.0.0.2", NotOwn.CLUSTER),
    ):
        with pytest.raises(NotAdmittedError) as caught:
            admission.own_registration(wrong, ip)
        assert caught.value.cause is cause
    # A broker of a name of its own brings its own topics, and is its own master.
    foreign = registered("10.0.0.5:10911", 0, "broker-b")
    assert admission.own_registration(foreign, "10.0.0.5") is foreign


def test_nobody_registers_the_address_of_a_node_under_a_name_of_its_own(tmp_path: Path) -> None:
    config = cluster_config(tmp_path)
    security = SecuritySettings(rocketmq_brokers=["broker-b@10.0.0.2"])
    admission = Admission(msgspec.structs.replace(config, security=security))
    with pytest.raises(NotAdmittedError) as caught:
        admission.own_registration(registered("10.0.0.2:10911", 0, "broker-b"), "10.0.0.2")
    assert caught.value.cause is NotOwn.NODE_ADDRESS
    beside = registered("10.0.0.2:20911", 0, "broker-b")
    assert admission.own_registration(beside, "10.0.0.2") is beside


def test_in_a_fenced_group_no_broker_takes_the_place_of_a_node(tmp_path: Path) -> None:
    security = SecuritySettings(rocketmq_brokers=["broker-a@10.0.0.2"])
    config = msgspec.structs.replace(fenced_cluster(tmp_path), security=security)
    place = next(node for node in config.nodes if node.address == "10.0.0.2")
    command = registered(place.broker_address, place.broker_id)
    with pytest.raises(NotAdmittedError) as caught:
        Admission(config).own_registration(command, "10.0.0.2")
    assert caught.value.cause is NotOwn.NODE_ADDRESS


def test_what_is_left_of_a_registration_fits_its_checksum(tmp_path: Path) -> None:
    """The checksum is of the topics, which are taken out."""
    header, body = registration()
    header = msgspec.structs.replace(header, body_crc32=5, compressed=True)
    admission = Admission(fenced_cluster(tmp_path, learners=LEARNER))
    command = RemotingCommand(RequestCode.REGISTER_BROKER, ext=header, body=body)
    own = admission.own_registration(command, LEARNER)
    left = own.decode_header(RegisterBrokerRequestHeader)
    assert (left.body_crc32, left.compressed, own.body) == (None, None, b"")
    assert left.broker_addr == header.broker_addr
