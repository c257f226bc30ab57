"""What `security:` of a cluster file may say."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandem.cluster_file.settings import SecuritySettings
    from tandem.cluster_file.yaml_reader import Reader


def check_security(reader: Reader, settings: SecuritySettings) -> None:
    """Complain about entries that admit nobody."""
    for entry in settings.rocketmq_brokers:
        name, at, address = entry.rpartition("@")
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            at = ""
        if not (name and at):
            reader.complain(
                "security.rocketmq_brokers",
                f"{entry!r} is not the name of a broker and the IPv4 address it dials from; write"
                " broker-b@10.0.0.5",
            )
