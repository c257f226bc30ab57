"""`coordinator:` of the cluster file, and what its settings mean to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tandem.cluster_file.choices import CoordinatorKind
from tandem.cluster_file.ranges import Port, milliseconds

if TYPE_CHECKING:
    from pathlib import Path

    from tandem.cluster_file.yaml_reader import Reader

COORDINATOR: Final = "coordinator"
"""How `reach` names it."""

COORDINATOR_PATHS: Final = ("password_file", "ca_file", "cert_file", "key_file")
"""The settings that are paths."""


class CoordinatorSettings(Struct, frozen=True):
    """`coordinator:` of the file. Classic groups need none."""

    kind: CoordinatorKind = CoordinatorKind.EMBEDDED
    address: str = "127.0.0.1"
    port: Port = 10_920
    endpoints: list[str] = []
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    lease_ttl_ms: Annotated[int, milliseconds(2_000, 600_000)] = 5_000

    def counted_from(self, directory: Path) -> CoordinatorSettings:
        """The same with absolute paths: relative ones count from the directory of the file."""
        given = {key: getattr(self, key) for key in COORDINATOR_PATHS}
        paths = {key: str(directory / path) for key, path in given.items() if path}
        return msgspec.structs.replace(self, **paths)


def check_coordinator(reader: Reader, settings: CoordinatorSettings) -> None:
    """Complain about what does not fit together in `coordinator:`."""
    if settings.kind is CoordinatorKind.EMBEDDED:
        if settings.endpoints:
            reader.complain(
                "coordinator.endpoints", "are of etcd; give kind: etcd, or take them out"
            )
        return
    if not settings.endpoints:
        reader.complain(
            "coordinator.kind",
            "etcd needs its addresses; give endpoints: [http://127.0.0.1:2379]",
        )
    for endpoint in settings.endpoints:
        if wrong := _what_is_wrong(endpoint):
            reader.complain(
                "coordinator.endpoints",
                f"{endpoint!r} {wrong}; give http://HOST:PORT or https://HOST:PORT",
            )
    if len({urlsplit(endpoint).scheme for endpoint in settings.endpoints}) > 1:
        reader.complain(
            "coordinator.endpoints",
            "some are http:// and some https://, but one password and one CA go to all of them;"
            " give one kind",
        )
    if settings.ca_file and any(each.startswith("http://") for each in settings.endpoints):
        reader.complain(
            "coordinator.ca_file", "is for https://, and an endpoint is http://: nothing is checked"
        )
    if bool(settings.user) != bool(settings.password_file):
        reader.complain("coordinator.user", "needs a password_file, and that one a user")
    if bool(settings.cert_file) != bool(settings.key_file):
        reader.complain("coordinator.cert_file", "needs a key_file, and that one a cert_file")


def _what_is_wrong(endpoint: str) -> str:
    """Return why an endpoint cannot be dialled, in words; empty if it can."""
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        return "is not an address of etcd"
    if url.scheme not in ("http", "https") or not url.hostname:
        return "is not an address of etcd"
    if not port:
        return "has no port (etcd's own is 2379)"
    if url.path.strip("/") or url.query or url.fragment or url.username:
        return "has more than a host and a port"
    return ""
