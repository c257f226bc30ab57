"""What a group of RocketMQ promises, by its settings, and by which rule of RocketMQ. Pure.

The audit counts; this says which counts must be 0. A promise that nobody made is not broken: such
a count is reported, with the reason, and the drill passes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tandem.drill.judgement import READS
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN
from tandem.drill.targets.rocketmq_layout import NODE_COUNT, Mode

PUT: Final = "CommitLog.asyncPutMessage, CommitLog.handleHA"
WAIT: Final = "GroupTransferService.doWaitTransfer"

DECIDING: Final[Mapping[str, str]] = {
    "allAckInSyncStateSet": "false",
    "inSyncReplicas": "1",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "false",
    "enableSlaveActingMaster": "false",
    "transientStorePoolEnable": "false",
}
"""Settings of brokers that a contract reckons with, and what is taken for them where none is given:
RocketMQ's defaults (MessageStoreConfig, BrokerConfig)."""

READ_AT_ONCE: Final = (
    "allAckInSyncStateSet=false: consumers read to the end of the master's log"
    " (CommitLog.getConfirmOffset), also what no other replica has yet"
)

_ALWAYS: Final = {
    "duplicated": "a request that is answered once is stored once (CommitLog.asyncPutMessage)",
    "phantom": "a log has what was sent, with the body that was sent",
    "out_of_order": "queue offsets have no gap, and what one producer sends one after the other"
    " stays in order in its queue (ConsumeQueue.putMessagePositionInfo)",
    "corrupt": "every record can be read, and has the checksum of its body"
    " (CommitLog.checkMessageAndReturnSize)",
    "slaves_not_identical": "replication copies the bytes of the log: when all are in sync, all"
    " logs are equal (DefaultHAConnection, AutoSwitchHAConnection)",
}
_IN_MASTERS_LOG: Final = (
    "the message is in the mapped log of the master, which a killed process leaves to the kernel"
    f" ({PUT})"
)


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What SEND_OK to a send that waits means, and what follows for the counts of an audit."""

    send_ok: str
    rules: Mapping[str, str]
    """Count that must be 0: by which rule."""
    not_promised: Mapping[str, str]
    """Count that may be above 0: why."""
    status_without_slaves: str
    """What sends that wait are answered when no slave is there."""


def contract_of(
    mode: Mode, settings: Mapping[str, str], *, is_4: bool, node_count: int = NODE_COUNT
) -> Contract:
    """Return the contract of a mode with these settings of brokers; the others are the defaults."""
    if settings.get("transientStorePoolEnable") == "true":
        return _with_pool(mode)
    if mode is Mode.CONTROLLER:
        return _controller(settings, node_count)
    return _classic(mode, settings, is_4=is_4)


def not_as_assumed(given: Mapping[str, str], said: Mapping[str, str]) -> list[str]:
    """Return the settings that decide, are not `given`, and are no default, as a broker says them.

    One that it does not say, its version does not have.
    """
    return [
        f"{key}={said[key]}"
        for key, default in DECIDING.items()
        if key not in given and said.get(key, default) != default
    ]


def _classic(mode: Mode, settings: Mapping[str, str], *, is_4: bool) -> Contract:
    wanted = int(settings.get("inSyncReplicas", "1"))
    if mode is Mode.ASYNC_MASTER:
        means, without = "SEND_OK waits for no slave (brokerRole=ASYNC_MASTER)", SEND_OK
    elif is_4:
        means, without = f"SEND_OK waits for one slave (SYNC_MASTER of 4.x; {WAIT})", ""
        without = SLAVE_NOT_AVAILABLE
    elif wanted <= 1:
        means, without = (
            "SEND_OK waits for no slave, although the role is SYNC_MASTER: inSyncReplicas is"
            f" {wanted}, counts the master, and RocketMQ 5 answers at once then ({PUT})",
            SEND_OK,
        )
    elif settings.get("enableSlaveActingMaster") == "true":
        means, without = _acting(settings, wanted)
    else:
        means, without = (
            f"SEND_OK waits until {wanted} replicas, the master counted, have the message in their"
            f" page cache (inSyncReplicas={wanted}; {WAIT})",
            FLUSH_SLAVE_TIMEOUT,
        )
    rules = {
        "sync_lost": _IN_MASTERS_LOG,
        "stored_but_missing": "an answer that is not SEND_OK but says why has been stored by the"
        f" master ({PUT})",
        "misplaced": "the answer names the place in the master's log",
        **_ALWAYS,
    }
    return Contract(
        send_ok=f"{means}. No master is elected: it is the master's log that counts",
        rules=rules,
        not_promised={},
        status_without_slaves=without,
    )


def _acting(settings: Mapping[str, str], wanted: int) -> tuple[str, str]:
    """What SEND_OK means where slaves may act as master, and what a master alone answers.

    There fewer replicas than are waited for are refused at once, which says nothing clear.
    """
    means = (
        f"SEND_OK waits until {wanted} replicas, the master counted, have the message in their page"
        f" cache (inSyncReplicas={wanted}; {WAIT})"
    )
    refused = "a master without them refuses (enableSlaveActingMaster=true)"
    if settings.get("enableAutoInSyncReplicas") != "true":
        return f"{means}; {refused}", UNKNOWN
    fewest = int(settings.get("minInSyncReplicas", "1"))
    fewer = f"{means}; for as many as are there, and no fewer than {fewest}, if there are not that"
    alone = SEND_OK if fewest <= 1 else UNKNOWN
    return f"{fewer} many (enableAutoInSyncReplicas=true; CommitLog.calcNeedAckNums)", alone


def _controller(settings: Mapping[str, str], node_count: int) -> Contract:
    all_ack = settings.get("allAckInSyncStateSet") == "true"
    wanted = int(settings.get("inSyncReplicas", "1"))
    alone = _alone(settings, SEND_OK if all_ack or wanted <= 1 else FLUSH_SLAVE_TIMEOUT)
    if all_ack:
        means = (
            "SEND_OK waits until every member of the SyncStateSet has the message in its page cache"
            f" (allAckInSyncStateSet=true; {WAIT}), and a master is elected from that set alone"
            " (enableElectUncleanMaster=false): RocketMQ's docs/en/controller/deploy.md says of it"
            " that the message is not lost"
        )
        return Contract(
            send_ok=means,
            rules={
                "sync_lost": "allAckInSyncStateSet=true: the message is not lost"
                " (docs/en/controller/deploy.md)",
                "misplaced": "an acknowledged message stays where the answer said, for every"
                " possible master has it",
                **_ALWAYS,
            },
            not_promised={},
            status_without_slaves=alone,
        )
    if wanted >= node_count:
        rules = {
            "sync_lost": f"inSyncReplicas={wanted}: every replica has what is acknowledged"
            f" ({WAIT})",
            "misplaced": "an acknowledged message stays where the answer said",
            **_ALWAYS,
        }
        return Contract(
            send_ok=f"SEND_OK waits for all {wanted} replicas (inSyncReplicas={wanted}; {WAIT})",
            rules=rules,
            not_promised={READS: READ_AT_ONCE},
            status_without_slaves=alone,
        )
    count = "no other replica" if wanted <= 1 else f"{wanted} replicas, the master counted"
    why = (
        f"SEND_OK waits for {count} (allAckInSyncStateSet=false, inSyncReplicas={wanted}), and the"
        " master that is elected next may be one that lacks the message"
    )
    lost = dict.fromkeys(("sync_lost", "misplaced", READS), why)
    return Contract(
        send_ok=why,
        rules=_ALWAYS,
        not_promised=lost,
        status_without_slaves=alone,
    )


def _alone(settings: Mapping[str, str], otherwise: str) -> str:
    """What the last one of a SyncStateSet answers: it refuses where more are needed to begin."""
    return UNKNOWN if int(settings.get("minInSyncReplicas", "1")) > 1 else otherwise


def _with_pool(mode: Mode) -> Contract:
    why = (
        "transientStorePoolEnable=true: a message is answered while it is in memory of the process,"
        " which a kill takes with it (TransientStorePool)"
    )
    counts = ("sync_lost", "stored_but_missing", "misplaced", READS)
    return Contract(
        send_ok=why,
        rules=_ALWAYS,
        not_promised=dict.fromkeys(counts, why),
        status_without_slaves=SEND_OK if mode is not Mode.CONTROLLER else FLUSH_SLAVE_TIMEOUT,
    )
