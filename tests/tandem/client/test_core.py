import msgspec
import pytest

from tandem.client.backoff import PAUSE_SECONDS_MIN
from tandem.client.core import (
    FRESH_SECONDS,
    ROUTE_RETRY_SECONDS,
    ClientCore,
    parse_addresses,
    split_address,
)
from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Pause
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HeartbeatData, UnregisterClientRequestHeader
from tandem.wire.route import decode_json_body
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    ONE_BROKER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    HandShell,
    answer_to,
    route_of,
)

SECOND_NAME_SERVER = "10.0.0.2:9876"
ROUTE_CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def producer_core(shell: HandShell, name_servers: str = NAME_SERVER) -> ClientCore:
    return ClientCore(name_servers, identity=IDENTITY, clock=shell.clock, producer_group="PG")


def lost() -> ConnectionLostError:
    return ConnectionLostError(NAME_SERVER, ConnectionCause.ENDED, "reset", outcome_unknown=True)


def test_a_route_is_fetched_once_and_kept() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    for _ in range(3):
        route = shell.run(core.route("orders", shell.now + 3))
        assert route.data == ONE_BROKER
    assert shell.calls_to(ROUTE_CODE) == [NAME_SERVER]


def test_the_next_name_server_is_asked_when_one_fails_and_it_is_remembered() -> None:
    shell = HandShell({SECOND_NAME_SERVER: FakeBroker()})
    core = producer_core(shell, f"{NAME_SERVER};{SECOND_NAME_SERVER}")
    shell.run(core.refresh_route("orders"))
    shell.run(core.refresh_route("orders"))
    assert shell.calls_to(ROUTE_CODE) == [
        *(NAME_SERVER, SECOND_NAME_SERVER),
        *(SECOND_NAME_SERVER, NAME_SERVER),
    ]


def test_that_no_name_server_answers_is_told_and_is_never_unknown() -> None:
    shell = HandShell({})
    core = producer_core(shell)
    shell.failures[NAME_SERVER] = [lost()]
    with pytest.raises(RouteNotFoundError) as caught:
        shell.run(core.route("orders", shell.now + 3))
    assert caught.value.cause is RouteCause.NO_NAME_SERVER
    assert [str(each) for each in caught.value.errors] == [str(lost())]
    assert not caught.value.outcome_unknown


def test_a_producer_takes_the_settings_of_new_topics() -> None:
    broker = FakeBroker()
    broker.routes["TBW102"] = route_of(("broker-a", {0: MASTER}), queue_nums=8)
    shell = HandShell({NAME_SERVER: broker})
    route = shell.run(producer_core(shell).route("new", shell.now + 3, for_sends=True))
    assert route.is_default
    assert len(route.publish_queues) == 4


def test_a_consumer_does_not() -> None:
    broker = FakeBroker()
    broker.routes["TBW102"] = ONE_BROKER
    shell = HandShell({NAME_SERVER: broker})
    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=shell.clock, consumer_group="CG")
    with pytest.raises(RouteNotFoundError) as caught:
        shell.run(core.route("new", shell.now + 3))
    assert caught.value.cause is RouteCause.NO_TOPIC


def test_a_route_that_the_name_servers_forgot_is_kept() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker})
    core = producer_core(shell)
    shell.run(core.refresh_route("orders"))
    broker.routes.clear()
    shell.run(core.refresh_route("orders"))
    assert core.routes["orders"].data == ONE_BROKER


def test_a_topic_that_a_change_of_the_master_took_away_is_made_anew() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker})
    core = producer_core(shell)
    shell.run(core.refresh_route("orders"))
    broker.routes.clear()
    broker.routes["TBW102"] = route_of(("broker-a", {0: SLAVE}), queue_nums=8)
    shell.run(core.refresh_route("orders"))
    assert not core.routes["orders"].is_default, "its sends do not fail"
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    route = shell.run(core.route("orders", shell.now + 3, for_sends=True))
    assert route.is_default
    assert {queue.address for queue in route.publish_queues} == {SLAVE}


def test_a_suspected_topic_that_nobody_can_make_anew_keeps_its_route() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker})
    core = producer_core(shell)
    shell.run(core.refresh_route("orders"))
    broker.routes.clear()
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    route = shell.run(core.route("orders", shell.now + 3, for_sends=True))
    assert (route.is_default, route.data) == (False, ONE_BROKER)


def test_a_suspected_route_is_fetched_again_but_not_too_often() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    core.suspect_route("orders")
    assert core.trusted_route("orders") is None
    shell.run(core.route("orders", shell.now + 3))
    assert len(shell.calls_to(ROUTE_CODE)) == 1
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert len(shell.calls_to(ROUTE_CODE)) == 2
    assert core.trusted_route("orders") is not None


def test_a_suspected_route_is_asked_for_twenty_times_in_a_second_then_four_times() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    asked = []
    for _ in range(3):
        before = len(shell.calls_to(ROUTE_CODE))
        for _ in range(100):
            shell.now += 0.01
            core.suspect_route("orders")
            shell.run(core.route("orders", shell.now + 3))
        asked.append(len(shell.calls_to(ROUTE_CODE)) - before)
    assert 15 <= asked[0] <= 20
    assert asked[2] <= 4
    shell.now += FRESH_SECONDS
    before = len(shell.calls_to(ROUTE_CODE))
    for _ in range(2):
        core.suspect_route("orders")
        shell.run(core.route("orders", shell.now + 3))
        shell.now += PAUSE_SECONDS_MIN
    assert len(shell.calls_to(ROUTE_CODE)) - before == 2


def test_an_old_route_is_used_when_no_fresh_one_can_be_had() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.failures[NAME_SERVER] = [lost()]
    assert shell.run(core.route("orders", shell.now + 3)).data == ONE_BROKER
    assert core.trusted_route("orders") is None


def test_without_a_route_name_servers_are_asked_at_a_bounded_rate() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    for _ in range(3):
        with pytest.raises(RouteNotFoundError):
            shell.run(core.route("unknown", shell.now + 3))
    pauses = [effect.seconds for effect in shell.effects if isinstance(effect, Pause)]
    assert pauses == [ROUTE_RETRY_SECONDS] * 2


def test_a_route_without_a_master_is_as_good_as_none_for_a_send() -> None:
    broker = FakeBroker()
    broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    shell = HandShell({NAME_SERVER: broker})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3, for_sends=True))
    broker.routes["orders"] = ONE_BROKER
    route = shell.run(core.route("orders", shell.now + 3, for_sends=True))
    assert route.publish_queues


def test_an_illegible_route_is_an_error_of_the_route() -> None:
    broker = FakeBroker()
    broker.handlers[ROUTE_CODE] = lambda request: answer_to(request, body=b"{")
    shell = HandShell({NAME_SERVER: broker})
    with pytest.raises(RouteNotFoundError) as caught:
        shell.run(producer_core(shell).refresh_route("orders"))
    (unreadable,) = caught.value.errors
    assert isinstance(unreadable, ConnectionLostError)
    assert unreadable.cause is ConnectionCause.MALFORMED
    broker.handlers[ROUTE_CODE] = lambda request: answer_to(request, 1, remark="broken")
    with pytest.raises(RouteNotFoundError) as caught:
        shell.run(producer_core(shell).refresh_route("orders"))
    (refusal,) = caught.value.errors
    assert isinstance(refusal, BrokerError)
    assert (refusal.code, refusal.address) == (1, NAME_SERVER)


def test_upkeep_refreshes_routes_and_greets_masters() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker, MASTER: broker})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    shell.run(core.upkeep())
    assert len(shell.calls_to(ROUTE_CODE)) == 2
    assert shell.calls_to(RequestCode.HEART_BEAT) == [MASTER]
    heartbeat = decode_json_body(broker.requests[-1].body, HeartbeatData)
    assert heartbeat.client_id == "10.0.0.9@4711#8"
    assert [producer.group_name for producer in heartbeat.producer_data_set] == ["PG"]


def test_a_broker_whose_connection_ended_while_it_was_greeted_is_greeted_again() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker, MASTER: broker})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    greeting = core.heartbeat([MASTER])
    next(greeting)
    core.connection_ended(MASTER)
    with pytest.raises(StopIteration):
        greeting.send(answer_to(RemotingCommand(RequestCode.HEART_BEAT)))
    assert core.strangers == [MASTER]
    shell.run(core.heartbeat([MASTER]))
    assert core.strangers == []


def test_upkeep_of_a_consumer_greets_slaves_too_and_names_its_topics() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker, MASTER: broker, SLAVE: broker})
    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=shell.clock, consumer_group="CG")
    shell.run(core.route("orders", shell.now + 3))
    shell.run(core.upkeep())
    assert shell.calls_to(RequestCode.HEART_BEAT) == [MASTER, SLAVE]
    (consumer,) = decode_json_body(broker.requests[-1].body, HeartbeatData).consumer_data_set
    assert [each.topic for each in consumer.subscription_data_set] == ["orders"]


def test_upkeep_survives_every_failure() -> None:
    shell = HandShell({NAME_SERVER: FakeBroker()})
    core = producer_core(shell)
    shell.run(core.route("orders", shell.now + 3))
    shell.failures[NAME_SERVER] = [lost()]
    shell.run(core.upkeep())
    assert core.trusted_route("orders") is None
    assert shell.calls_to(RequestCode.HEART_BEAT) == [MASTER]


def test_goodbye_is_said_to_those_that_were_greeted() -> None:
    broker = FakeBroker()
    shell = HandShell({NAME_SERVER: broker, MASTER: broker})
    core = producer_core(shell)
    shell.run(core.goodbye())
    assert shell.calls_to(RequestCode.UNREGISTER_CLIENT) == []
    shell.run(core.route("orders", shell.now + 3))
    shell.run(core.upkeep())
    shell.run(core.goodbye())
    header = broker.requests[-1].decode_header(UnregisterClientRequestHeader)
    assert header == UnregisterClientRequestHeader("10.0.0.9@4711#8", "PG")
    shell.failures[MASTER] = [lost()]
    shell.run(core.goodbye())


def test_addresses_are_checked() -> None:
    assert parse_addresses("a:1; b:2") == ["a:1", "b:2"]
    assert parse_addresses(["[::1]:9876"]) == ["[::1]:9876"]
    assert split_address("[::1]:9876") == ("::1", 9876)
    for bad in ("", "a", "a:", ":1", "a:0", "a:70000", "a:b", "a:1;b"):
        with pytest.raises(ArgumentError) as caught:
            parse_addresses(bad)
        assert caught.value.names == ("name_servers",)
    with pytest.raises(ArgumentError) as caught:
        parse_addresses([])
    assert caught.value.names == ("name_servers",)


def told_by(broker: FakeBroker, epoch: int, master: str) -> None:
    """Let a name server tell of a master and its epoch."""
    route = route_of(("broker-a", {0: master, 1: SLAVE}))
    (data,) = route.broker_datas
    with_epoch = msgspec.structs.replace(data, master_epoch=epoch)
    broker.routes["orders"] = msgspec.structs.replace(route, broker_datas=[with_epoch])


def master_of(core: ClientCore) -> str:
    return core.routes["orders"].data.broker_datas[0].broker_addrs[0]


def two_name_servers() -> tuple[HandShell, ClientCore, FakeBroker, FakeBroker]:
    first, second = FakeBroker(), FakeBroker()
    shell = HandShell({NAME_SERVER: first, SECOND_NAME_SERVER: second})
    core = producer_core(shell, f"{NAME_SERVER};{SECOND_NAME_SERVER}")
    told_by(first, 3, MASTER)
    told_by(second, 3, MASTER)
    shell.run(core.route("orders", shell.now + 3))
    return shell, core, first, second


def test_a_name_server_that_still_tells_of_the_old_master_is_overruled() -> None:
    shell, core, _, second = two_name_servers()
    told_by(second, 4, OTHER_MASTER)
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert master_of(core) == OTHER_MASTER
    shell.run(core.refresh_route("orders"))
    assert master_of(core) == OTHER_MASTER


def test_one_name_server_is_enough_when_it_tells_of_a_new_master() -> None:
    shell, core, first, _ = two_name_servers()
    told_by(first, 4, OTHER_MASTER)
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert master_of(core) == OTHER_MASTER
    assert shell.calls_to(ROUTE_CODE) == [NAME_SERVER, SECOND_NAME_SERVER, NAME_SERVER]


def test_a_name_server_that_has_forgotten_everything_is_overruled() -> None:
    shell, core, first, second = two_name_servers()
    first.routes.clear()
    told_by(second, 4, OTHER_MASTER)
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert master_of(core) == OTHER_MASTER


@pytest.mark.parametrize("body", [b"{", b""])
def test_a_second_name_server_that_talks_nonsense_changes_nothing(body: bytes) -> None:
    shell, core, _, second = two_name_servers()
    second.handlers[ROUTE_CODE] = lambda request: answer_to(request, body=body)
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert master_of(core) == MASTER


def test_a_silent_name_server_is_not_asked_again_for_a_while() -> None:
    shell, core, first, _ = two_name_servers()
    first.handlers[ROUTE_CODE] = lambda _: None
    shell.run(core.refresh_route("orders"))
    shell.run(core.refresh_route("orders"))
    assert shell.calls_to(ROUTE_CODE)[2:] == [NAME_SERVER, SECOND_NAME_SERVER, SECOND_NAME_SERVER]
    core.suspect_route("orders")
    shell.now += ROUTE_RETRY_SECONDS
    shell.run(core.route("orders", shell.now + 3))
    assert shell.calls_to(ROUTE_CODE)[5:] == [SECOND_NAME_SERVER]


def test_a_guessed_route_without_a_master_is_looked_for_again_also_elsewhere() -> None:
    first, second = FakeBroker(), FakeBroker()
    shell = HandShell({NAME_SERVER: first, SECOND_NAME_SERVER: second})
    core = producer_core(shell, f"{NAME_SERVER};{SECOND_NAME_SERVER}")
    first.routes["TBW102"] = second.routes["TBW102"] = route_of(("broker-a", {1: SLAVE}))
    route = shell.run(core.route("new", shell.now + 3, for_sends=True))
    assert (route.is_default, route.publish_queues) == (True, ())
    core.suspect_route("new")
    second.routes["TBW102"] = ONE_BROKER
    route = shell.run(core.route("new", shell.now + 3, for_sends=True))
    assert route.is_default
    assert {queue.address for queue in route.publish_queues} == {MASTER}
    core.suspect_route("new")
    second.routes["new"] = route_of(("broker-a", {0: MASTER}), queue_nums=7)
    shell.now += ROUTE_RETRY_SECONDS
    route = shell.run(core.route("new", shell.now + 3, for_sends=True))
    assert not route.is_default
