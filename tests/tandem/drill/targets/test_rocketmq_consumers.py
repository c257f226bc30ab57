"""What RocketMQ promises to groups of consumers, by its settings."""

import pytest

from tandem.drill.consumers.promises import EXCEPTIONS, PREFIX, RULES, Promises
from tandem.drill.targets.rocketmq_consumers import ConsumerContract, consumer_contract_of
from tandem.drill.targets.rocketmq_contract import contract_of
from tandem.drill.targets.rocketmq_layout import Mode
from tests.tandem.drill.consumers.planted_consumers import (
    GROUPS,
    PLANTS,
    WAITING,
    PlantedConsumers,
    a_transaction_that_ended_twice,
)

ALL_ACK = {"allAckInSyncStateSet": "true"}
ACTING = {"enableSlaveActingMaster": "true"}
OF_READS = {"passed_over", "consumed_out_of_order", "changed_after_read", "owed_plain"}
AFTER_A_SWITCH = {"owed_delays", "owed_transactions", "owed_retries"}

CONFIGURATIONS = [
    (Mode.CONTROLLER, ALL_ACK, AFTER_A_SWITCH),
    (Mode.CONTROLLER, {}, AFTER_A_SWITCH | OF_READS | {"other_retries"}),
    (Mode.CONTROLLER, {"inSyncReplicas": "3"}, AFTER_A_SWITCH | OF_READS | {"other_retries"}),
    (Mode.SYNC_MASTER, {"inSyncReplicas": "2"}, set()),
    (Mode.SYNC_MASTER, ACTING, AFTER_A_SWITCH),
    (Mode.ASYNC_MASTER, {}, set()),
    (
        Mode.ASYNC_MASTER,
        {"transientStorePoolEnable": "true"},
        AFTER_A_SWITCH | OF_READS | {"other_retries"},
    ),
]


def of(mode: Mode, settings: dict[str, str]) -> ConsumerContract:
    not_promised = contract_of(mode, settings, is_4=False).not_promised
    return consumer_contract_of(mode, settings, not_promised=not_promised)


@pytest.mark.parametrize(("mode", "settings", "free"), CONFIGURATIONS)
def test_what_is_not_promised_follows_from_the_settings(
    mode: Mode, settings: dict[str, str], free: set[str]
) -> None:
    always = {"repeated_delays", "repeated_transactions", "member_ended"}

    assert of(mode, settings).not_promised.keys() == {PREFIX + name for name in free | always}


@pytest.mark.parametrize(("mode", "settings", "free"), CONFIGURATIONS)
def test_each_rule_is_promised_by_a_rule_of_rocketmq_or_not_with_a_reason(
    mode: Mode, settings: dict[str, str], free: set[str]
) -> None:
    contract = of(mode, settings)
    both = {**contract.rules, **contract.not_promised}

    assert not set(contract.rules) & set(contract.not_promised)
    assert {PREFIX + name for name in RULES} <= set(both) <= {PREFIX + name for name in EXCEPTIONS}
    assert all(both.values())


def test_a_planted_fault_breaks_a_promise_where_it_was_made_and_nowhere_else() -> None:
    kept, without = of(Mode.CONTROLLER, ALL_ACK), of(Mode.CONTROLLER, {})
    for plant in PLANTS:
        for contract in (kept, without):
            planted = PlantedConsumers()
            rule = plant(planted)
            promises = Promises(GROUPS, not_promised=contract.not_promised, rules=contract.rules)
            for line in planted.lines:
                promises.take(line)
            summary = promises.summary()
            if rule in summary.broken_counts:
                assert contract.rules[PREFIX + rule] in {each.reason for each in summary.findings}
            else:
                assert summary.not_promised_counts
                assert all(each.reason for each in summary.not_promised)
            is_free = plant is a_transaction_that_ended_twice or rule == "member_ended"
            if contract is kept:
                assert (rule in summary.broken_counts) is not is_free


def test_what_waited_may_come_twice_and_what_did_not_may_not() -> None:
    contract = of(Mode.CONTROLLER, ALL_ACK)
    planted = PlantedConsumers()
    planted.see("first", "delayed-000001", WAITING)
    promises = Promises(GROUPS, not_promised=contract.not_promised)
    for line in planted.lines:
        promises.take(line)
    assert promises.summary().broken_counts == {}
    planted.see("first", "plain-000001", "plain")
    promises.take(planted.lines[-1])
    assert promises.summary().broken_counts == {"repeated": 1}
