"""A classic group of a master and a slave, and what they say."""

from pathlib import Path

from tandem.views.classic_nodes import classic_nodes
from tandem.wire.request_headers import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from tests.tandem.cluster.fakes import fake_spec

NODES = classic_nodes(fake_spec(Path("/nowhere"), "m", "s"))
SLAVE = HARuntimeInfo(
    master=False, ha_client_runtime_info=HAClientRuntimeInfo(master_addr="", max_offset=700)
)


def master(*slaves: HAConnectionRuntimeInfo) -> HARuntimeInfo:
    return HARuntimeInfo(
        master=True, master_commit_log_max_offset=1000, ha_connection_info=list(slaves)
    )


def connection(**changes: object) -> HAConnectionRuntimeInfo:
    facts = {"addr": "127.0.0.2:4711", "slave_ack_offset": 900, "diff": 100, "in_sync": True}
    return HAConnectionRuntimeInfo(**{**facts, **changes})  # type: ignore[arg-type]
