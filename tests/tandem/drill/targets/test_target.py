from tandem.drill.scenario_file import find_scenario
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets.target import cannot

OF_ROCKETMQ = frozenset((Fault.KILL, Fault.STOP, Fault.FREEZE))


def test_a_scenario_that_needs_what_the_target_has_can_be_played() -> None:
    assert cannot("rocketmq", OF_ROCKETMQ, find_scenario("master-kill")) == ""


def test_what_the_target_cannot_do_is_named() -> None:
    assert cannot("rocketmq", OF_ROCKETMQ, find_scenario("partition")) == (
        "the target rocketmq cannot cut the network around a node"
    )
    assert Fault.RESIGN in cannot("rocketmq", OF_ROCKETMQ, find_scenario("master-resign"))
    assert Fault.COORDINATOR in cannot("x", OF_ROCKETMQ, find_scenario("coordinator-restart"))
    assert Fault.FULL_DISK in cannot("x", OF_ROCKETMQ, find_scenario("master-disk-full"))
    assert Fault.ROT in cannot("x", OF_ROCKETMQ, find_scenario("flipped-bit"))
    assert Fault.TORN_TAIL in cannot("x", OF_ROCKETMQ, find_scenario("torn-tail"))
    assert Fault.COPY in cannot("x", OF_ROCKETMQ, find_scenario("restored-directory"))


def test_our_own_cluster_can_do_all() -> None:
    assert cannot("tandem", frozenset(Fault), find_scenario("partition")) == ""
