"""What a group of RocketMQ promises to consumers, by its settings, and by which rule. Pure.

A group's offsets, the progress of what waits and the marks of decided transactions are no part of
the log: they are files and memory of the master, which slaves copy now and then. So a switch may
take them back, and what was done since is done again, or never.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tandem.drill.consumers.promises import (
    CHANGED,
    DEAD_EARLY,
    EARLY,
    MEMBER_ENDED,
    OTHER_RETRIES,
    OUT_OF_ORDER,
    OWED_DELAYS,
    OWED_PLAIN,
    OWED_RETRIES,
    OWED_TRANSACTIONS,
    PASSED_OVER,
    PREFIX,
    REPEATED,
    REPEATED_DELAYS,
    REPEATED_TRANSACTIONS,
    RETRIED_EARLY,
    STRANGE,
    UNCOMMITTED,
)
from tandem.drill.judgement import READS
from tandem.drill.targets.rocketmq_layout import Mode
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL

_ALWAYS: Final[Mapping[str, str]] = {
    STRANGE: "a pull is answered with the records of the log (DefaultMessageStore.getMessage)",
    REPEATED: "a request that is answered once is stored once (CommitLog.asyncPutMessage)",
    EARLY: "what waits gets to its topic when its time has come"
    " (ScheduleMessageService.DeliverDelayedMessageTimerTask, TimerMessageStore.dequeue)",
    UNCOMMITTED: "a half is in RMQ_SYS_TRANS_HALF_TOPIC, and gets to its topic when END_TRANSACTION"
    " says commit (TransactionalMessageBridge.parseHalfMessageInner, EndTransactionProcessor)",
    RETRIED_EARLY: "what is given back waits by its delay level"
    " (AbstractSendMessageProcessor.consumerSendMsgBack)",
    DEAD_EARLY: "a message is a dead letter when it has come back maxReconsumeTimes times"
    " (AbstractSendMessageProcessor.consumerSendMsgBack)",
}
_OF_READS: Final[Mapping[str, str]] = {
    PASSED_OVER: "a broker keeps the offset that the group commits"
    " (ConsumerOffsetManager.commitOffset), and a slave never has a later one"
    " (SlaveSynchronize.syncConsumerOffset)",
    OUT_OF_ORDER: "a queue is handed out by its offsets, from the group's own on"
    " (PullMessageProcessor), to one member at a time (RebalanceLockManager)",
    CHANGED: "what may be read is in the log of each possible master"
    " (ReputMessageService, CommitLog.getConfirmOffset)",
}
_OWED_AT_LAST: Final[Mapping[str, str]] = {
    OWED_DELAYS: "what waits is put into its topic from the queue that it waits in, from the last"
    " saved progress on (ScheduleMessageService.load, TimerMessageStore.recover)",
    OWED_TRANSACTIONS: "a half without a mark is asked about until it has one"
    " (TransactionalMessageServiceImpl.check)",
    OWED_RETRIES: "what was given back is in the master's log before that is answered"
    " (AbstractSendMessageProcessor.consumerSendMsgBack)",
}

_REPEATS_DELAYS: Final = (
    "the progress of what waits is a file that is written every 10 s, and that slaves copy no more"
    " often: after a kill or a switch it is delivered again from there"
    " (ScheduleMessageService.persist, TimerCheckpoint, SlaveSynchronize.syncDelayOffset)"
)
_REPEATS_TRANSACTIONS: Final = (
    "END_TRANSACTION is not idempotent (EndTransactionProcessor), and the marks of decided halves"
    " are in memory for up to transactionOpBatchInterval, 3 s (TransactionalOpBatchService): where"
    " one is lost, the broker asks again, and the answer commits once more"
)
_CLIENTS: Final = (
    "the members are of TandemMQ's client, and what ends one of them is a matter of that client"
)
_LOOKED_UP: Final = (
    "what is given back is looked up by its place in the log alone"
    " (AbstractSendMessageProcessor.consumerSendMsgBack), where another master may have something"
    " else"
)
_NOT_WAITED_FOR: Final = (
    "brokers put it into the log with WAIT=false: it waits for no slave, and the progress that"
    " slaves have copied may be past it when one of them becomes master"
)
_OWED_AFTER_A_SWITCH: Final[Mapping[str, str]] = {
    OWED_DELAYS: f"{_NOT_WAITED_FOR} (ScheduleMessageService.messageTimeUp,"
    " TimerMessageStore.convertMessage, SlaveSynchronize.syncDelayOffset)",
    OWED_TRANSACTIONS: f"a half that was asked about is stored anew, and its commit is one-way."
    f" {_NOT_WAITED_FOR[0].upper()}{_NOT_WAITED_FOR[1:]}"
    " (TransactionalMessageBridge.renewHalfMessageInner, SlaveSynchronize.syncConsumerOffset)",
    OWED_RETRIES: f"{_NOT_WAITED_FOR} (AbstractSendMessageProcessor.consumerSendMsgBack)",
}


def are_groups_played(settings: Mapping[str, str], *, is_4: bool) -> bool:
    """Whether brokers with these settings take the load of groups.

    They make its groups by themselves, and have RocketMQ's delay levels. With 4.x nobody has seen
    what becomes of it.
    """
    makes_groups = settings.get("autoCreateSubscriptionGroup", "true") == "true"
    return makes_groups and "messageDelayLevel" not in settings and not is_4


_WANTED: Final[Mapping[str, str]] = {
    "autoCreateSubscriptionGroup": "true",
    "rejectTransactionMessage": "false",
    "messageDelayLevel": MESSAGE_DELAY_LEVEL,
}


def unsuited(said: Mapping[str, str]) -> list[str]:
    """Return the settings, as a broker says them, with which the load of groups cannot be played.

    One that it does not say, its version does not have.
    """
    return [
        f"{key}={said[key]}"
        for key, wanted in _WANTED.items()
        if said.get(key, wanted).strip() != wanted
    ]


class ConsumerContract(msgspec.Struct, frozen=True, kw_only=True):
    """What is promised to consumers beside what the audit of the logs counts. Names with PREFIX."""

    rules: Mapping[str, str]
    """Count that must be 0, or what has to come: by which rule."""
    not_promised: Mapping[str, str]
    """What may be otherwise: why."""


def consumer_contract_of(
    mode: Mode, settings: Mapping[str, str], *, not_promised: Mapping[str, str]
) -> ConsumerContract:
    """Return what consumers are promised; `not_promised` is of the audit, with these settings."""
    why_not = {
        REPEATED_DELAYS: _REPEATS_DELAYS,
        REPEATED_TRANSACTIONS: _REPEATS_TRANSACTIONS,
        MEMBER_ENDED: _CLIENTS,
    }
    rules = {
        **_ALWAYS,
        **_OF_READS,
        **_OWED_AT_LAST,
        OWED_PLAIN: "a group is handed all of a queue from its offset on (PullMessageProcessor)",
    }
    if mode is Mode.CONTROLLER or settings.get("enableSlaveActingMaster") == "true":
        why_not |= _OWED_AFTER_A_SWITCH
    if READS in not_promised:
        free = (*_OF_READS, *_OWED_AT_LAST, OWED_PLAIN)
        why_not |= dict.fromkeys(free, not_promised[READS])
        why_not[OTHER_RETRIES] = f"{_LOOKED_UP}: {not_promised[READS]}"
    return ConsumerContract(
        rules={PREFIX + name: why for name, why in rules.items() if name not in why_not},
        not_promised={PREFIX + name: why for name, why in why_not.items()},
    )
