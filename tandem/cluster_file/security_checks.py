"""What `security:` of a cluster file may say."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec

from tandem.cluster_file.choices import ClientAccess

if TYPE_CHECKING:
    from tandem.cluster_file.settings import SecuritySettings, TLSSettings
    from tandem.cluster_file.yaml_reader import Reader


def check_security(reader: Reader, settings: SecuritySettings) -> None:
    """Complain about entries that admit nobody, and about bounds of users where there are none."""
    if settings.clients is ClientAccess.OPEN:
        for name, most in msgspec.structs.asdict(settings.user_quota).items():
            if most is not None:
                reader.complain(
                    f"security.user_{name}",
                    "bounds users, and security.clients: open asks nobody who they are; take"
                    " authenticated or authorized, or leave it out",
                )
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


def check_tls(reader: Reader, settings: TLSSettings) -> None:
    """Complain about names of files that are missing where TLS is spoken."""
    if settings.is_on:
        for key in ("ca_file", "certificate_file", "key_file"):
            if not getattr(settings, key):
                reader.complain(f"tls.{key}", "is needed for TLS; leave it out for the usual one")
