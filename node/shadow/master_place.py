"""Which broker a shadow follows, and where that listens. Rules only; `master_search` asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from node.shadow.errors import ShadowCause, ShadowError
from tandem.wire.message import Host
from tandem.wire.route import MASTER_ID, ClusterInfo
from tandem.wire.untrusted import UnreadableError, whole_number

PORT_MAX: Final = 65_535
BYTES_MAX: Final = 1 << 40
HA_PORT_DEFAULT: Final = 10_912
"""Source: MessageStoreConfig.haListenPort."""


class MasterPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a master listens, and what of its settings a copy has to share."""

    broker_name: str
    client: Host
    ha: Host
    commit_log_file_bytes: int
    """0 if it did not say."""
    max_message_bytes: int
    """0 if it did not say."""


class LogRange(msgspec.Struct, frozen=True):
    """What a master's log holds: physical offsets, the end excluded."""

    start: int
    end: int


def chosen_broker(cluster: ClusterInfo, wanted: str, master: Host) -> str:
    """Return the name of the broker to follow.

    Raises:
        ShadowError: none of the name servers' brokers is it, or it is not clear which one.
    """
    table = cluster.broker_addr_table
    known = ", ".join(sorted(table)) or "none"
    if wanted:
        if wanted in table:
            return wanted
        raise ShadowError(
            f"the name server knows no broker {wanted}; it knows {known}: give one of them",
            ShadowCause.UNKNOWN_BROKER,
        )
    here = [
        name
        for name, broker in table.items()
        if any(address_of(text).ip == master.ip for text in broker.broker_addrs.values())
    ]
    if len(here) == 1:
        return here[0]
    where = f"{len(here)} brokers" if here else "no broker"
    raise ShadowError(
        f"the name server knows {where} at {master.ip}; its brokers are {known}:"
        " say which one with --broker",
        ShadowCause.WHICH_BROKER,
    )


def address_of(text: str) -> Host:
    """Read `host:port` as brokers register it; what is not like that has port 0."""
    host, _, port = text.rpartition(":")
    try:
        number = whole_number(port)
    except UnreadableError:
        number = 0
    return Host(host, number if number <= PORT_MAX else 0)


def master_of(cluster: ClusterInfo, broker_name: str) -> Host | None:
    """Return the client address of the broker's master; None if it has none now."""
    broker = cluster.broker_addr_table.get(broker_name)
    text = broker.broker_addrs.get(MASTER_ID) if broker is not None else None
    found = address_of(text) if text else None
    return found if found is not None and found.port else None


def place_of(broker_name: str, client: Host, settings: Mapping[str, str]) -> MasterPlace:
    """Return what a broker's own settings say about it.

    Source: BrokerConfig.brokerIP2, MessageStoreConfig.haListenPort: brokerIP2:haListenPort is what
    a master publishes to its slaves.
    """
    port = _number(settings, "haListenPort", PORT_MAX) or HA_PORT_DEFAULT
    return MasterPlace(
        broker_name=broker_name,
        client=client,
        ha=Host(settings.get("brokerIP2") or client.ip, port),
        commit_log_file_bytes=_number(settings, "mappedFileSizeCommitLog", BYTES_MAX),
        max_message_bytes=_number(settings, "maxMessageSize", BYTES_MAX),
    )


def range_of(runtime_info: Mapping[str, str]) -> LogRange | None:
    """Return what a broker's runtime info says about its log; None if it says nothing.

    Source: AdminBrokerProcessor.prepareRuntimeInfo.
    """
    try:
        start = whole_number(runtime_info["commitLogMinOffset"])
        end = whole_number(runtime_info["commitLogMaxOffset"])
    except (KeyError, UnreadableError):
        return None
    return LogRange(start, end) if 0 <= start <= end else None


def _number(settings: Mapping[str, str], name: str, most: int) -> int:
    try:
        number = whole_number(settings.get(name, "0"))
    except UnreadableError:
        return 0
    return number if 0 < number <= most else 0
