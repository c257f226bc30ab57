from tandem.client.admin_calls import BrokerAnswer
from tandem.client.errors import BrokerError, ClientError, ConnectionCause, ConnectionLostError
from tandem.client.life_nodes import LifeNodes, remedy_for
from tandem.life.evidence import Epoch, Evidence
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HAConnectionRuntimeInfo, HARuntimeInfo
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, SLAVE, answer_to
from tests.tandem.client.life_world import LifeWorld, status


def gathered(world: LifeWorld) -> Evidence:
    evidence = world.evidence()
    world.run(LifeNodes(world.calls).gather(evidence))
    return evidence


def test_each_node_says_where_its_log_begins_and_ends() -> None:
    logs = gathered(LifeWorld()).nodes
    assert [(log.node, log.broker, log.role) for log in logs] == [
        (MASTER, "broker-a", "MASTER"),
        (SLAVE, "broker-a", "SLAVE"),
        (OTHER_MASTER, "broker-b", "MASTER"),
    ]
    assert {(log.start, log.end, log.is_indexed) for log in logs} == {(0, 9_000, True)}
    assert {log.contract for log in logs} == {"brokerRole SYNC_MASTER"}


def test_a_node_of_a_fenced_group_has_its_own_name_and_epochs() -> None:
    world = LifeWorld()
    world.fence(status)
    log = gathered(world).nodes[0]
    assert (log.node, log.is_fenced, log.confirm) == ("broker-a-1", True, 9_000)
    assert log.epochs == (Epoch(1, 0), Epoch(4, 900))
    assert log.switched_ms == 0


def test_a_first_master_is_no_change_of_master() -> None:
    world = LifeWorld()
    world.fence(lambda name: status(name, last_switch_at_ms=5, previous_master="broker-a-2"))
    assert gathered(world).nodes[0].switched_ms == 5
    world.fence(lambda name: status(name, last_switch_at_ms=5))
    assert gathered(world).nodes[0].switched_ms == 0


def test_a_classic_master_tells_of_its_slaves() -> None:
    world = LifeWorld()
    slave = HAConnectionRuntimeInfo("10.0.0.2:1", 800, 9, in_sync=False, name="s", reason="slow")
    info = HARuntimeInfo(master=True, ha_connection_info=[slave])
    world.bodies(RequestCode.GET_BROKER_HA_STATUS, lambda _: info)
    (replica,) = gathered(world).nodes[0].replicas
    assert (replica.name, replica.written, replica.trouble) == ("s", 800, "slow")


def test_a_node_that_never_reached_a_new_master_is_missed() -> None:
    world = LifeWorld()
    world.fence(lambda name: status(name, replicas=[]))
    away = HAConnectionRuntimeInfo(
        "h:1", -1, 9, in_sync=False, transfer_from_where=-1, name="broker-a-2", reason="is away"
    )
    info = HARuntimeInfo(master=True, ha_connection_info=[away])
    world.bodies(RequestCode.GET_BROKER_HA_STATUS, lambda _: info)
    gaps = {gap.what: gap.why for gap in gathered(world).gaps}
    assert gaps["node broker-a-2"] == "is away"


def test_a_node_that_answers_nonsense_is_known_as_far_as_it_makes_sense() -> None:
    world = LifeWorld()
    for code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG):
        world.answer(code, lambda request, name: answer_to(request, body=b"\xff{"))
    log = gathered(world).nodes[0]
    assert (log.start, log.end, log.is_indexed) == (-1, -1, None)


def test_a_node_that_does_not_answer_has_trouble_and_is_a_gap() -> None:
    world = LifeWorld()
    world.shell.failures[SLAVE] = [
        ConnectionLostError(SLAVE, ConnectionCause.UNREACHABLE, "refused")
    ] * 5
    evidence = gathered(world)
    assert evidence.nodes[1].trouble
    assert any(gap.what == f"node {SLAVE}" for gap in evidence.gaps)


def test_what_a_node_may_not_say_is_a_gap_and_its_role_is_not_guessed() -> None:
    world = LifeWorld()
    for code in (RequestCode.FENCED_STATUS, RequestCode.GET_BROKER_RUNTIME_INFO):
        world.refuse(code, ResponseCode.NO_PERMISSION)
    evidence = gathered(world)
    assert [log.role for log in evidence.nodes] == ["MASTER", "", "MASTER"]
    assert any("begins and ends" in gap.what and gap.remedy for gap in evidence.gaps)


def test_a_broker_is_asked_at_another_node_if_its_master_does_not_answer() -> None:
    world = LifeWorld()
    nodes = world.run(LifeNodes(world.calls).gather(world.evidence()))
    world.shell.failures[MASTER] = [
        ConnectionLostError(MASTER, ConnectionCause.UNREACHABLE, "refused")
    ]
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    answer = world.run(nodes.ask_broker("broker-a", code, None))
    assert isinstance(answer, BrokerAnswer)
    assert answer.address == SLAVE
    assert nodes.addresses("broker-a") == [SLAVE]
    nobody = world.run(nodes.ask_broker("no such broker", code, None))
    assert isinstance(nobody, ClientError)


def test_a_refusal_has_a_remedy() -> None:
    assert remedy_for(BrokerError(ResponseCode.NO_PERMISSION, "no"))
    assert remedy_for(ConnectionLostError("a", ConnectionCause.UNREACHABLE, "refused"))
    assert not remedy_for(BrokerError(ResponseCode.SYSTEM_ERROR, "no"))
