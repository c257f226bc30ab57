"""Which counts of an audit must be 0 under which settings of RocketMQ."""

import pytest

from tandem.drill.evidence import PROMISES, held_to
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN
from tandem.drill.targets.rocketmq_contract import contract_of
from tandem.drill.targets.rocketmq_layout import Mode
from tests.tandem.drill import samples

ACTING = {"enableSlaveActingMaster": "true", "inSyncReplicas": "2"}

ALL = [
    (Mode.CONTROLLER, {"allAckInSyncStateSet": "true"}, True),
    (Mode.CONTROLLER, {}, False),
    (Mode.CONTROLLER, {"inSyncReplicas": "2"}, False),
    (Mode.CONTROLLER, {"inSyncReplicas": "3"}, True),
    (Mode.SYNC_MASTER, {}, True),
    (Mode.SYNC_MASTER, {"inSyncReplicas": "2"}, True),
    (Mode.ASYNC_MASTER, {}, True),
    (Mode.SYNC_MASTER, {"transientStorePoolEnable": "true"}, False),
    (Mode.CONTROLLER, {"transientStorePoolEnable": "true"}, False),
]


@pytest.mark.parametrize(("mode", "settings", "is_promised"), ALL)
def test_whether_an_acknowledged_message_may_be_lost_follows_from_the_settings(
    mode: Mode, settings: dict[str, str], *, is_promised: bool
) -> None:
    contract = contract_of(mode, settings, is_4=False)

    assert ("sync_lost" in contract.rules) is is_promised
    assert ("sync_lost" in contract.not_promised) is not is_promised


@pytest.mark.parametrize(("mode", "settings", "is_promised"), ALL)
def test_no_count_is_both_promised_and_not(
    mode: Mode, settings: dict[str, str], *, is_promised: bool
) -> None:
    contract = contract_of(mode, settings, is_4=False)

    assert not set(contract.rules) & set(contract.not_promised)
    assert set(contract.rules) <= set(PROMISES)
    assert contract.send_ok


@pytest.mark.parametrize(
    ("mode", "settings", "is_4", "status"),
    [
        (Mode.SYNC_MASTER, {}, False, SEND_OK),
        (Mode.SYNC_MASTER, {"inSyncReplicas": "2"}, False, FLUSH_SLAVE_TIMEOUT),
        (Mode.SYNC_MASTER, {}, True, SLAVE_NOT_AVAILABLE),
        (Mode.ASYNC_MASTER, {}, False, SEND_OK),
        (Mode.SYNC_MASTER, ACTING, False, UNKNOWN),
        (Mode.CONTROLLER, {"allAckInSyncStateSet": "true"}, False, SEND_OK),
        (
            Mode.CONTROLLER,
            {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
            False,
            UNKNOWN,
        ),
        (Mode.CONTROLLER, {}, False, SEND_OK),
        (Mode.CONTROLLER, {"minInSyncReplicas": "2"}, False, UNKNOWN),
        (Mode.CONTROLLER, {"inSyncReplicas": "2"}, False, FLUSH_SLAVE_TIMEOUT),
        (Mode.CONTROLLER, {"inSyncReplicas": "3"}, False, FLUSH_SLAVE_TIMEOUT),
        (Mode.SYNC_MASTER, {**ACTING, "inSyncReplicas": "1"}, False, SEND_OK),
        (Mode.SYNC_MASTER, {**ACTING, "enableAutoInSyncReplicas": "true"}, False, SEND_OK),
        (
            Mode.SYNC_MASTER,
            {**ACTING, "enableAutoInSyncReplicas": "true", "minInSyncReplicas": "2"},
            False,
            UNKNOWN,
        ),
    ],
)
def test_what_is_answered_without_slaves_follows_from_the_settings(
    mode: Mode, settings: dict[str, str], *, is_4: bool, status: str
) -> None:
    assert contract_of(mode, settings, is_4=is_4).status_without_slaves == status


def test_a_planted_loss_breaks_a_promise_where_it_was_made_and_nowhere_else() -> None:
    lost = samples.audit(sync_lost=1)

    kept = contract_of(Mode.CONTROLLER, {"allAckInSyncStateSet": "true"}, is_4=False)
    without = contract_of(Mode.CONTROLLER, {}, is_4=False)

    assert held_to(lost, kept.not_promised) == 1
    assert held_to(lost, without.not_promised) == 0
