"""The options that say where a cluster is and who asks: the same for the source and the sink."""

from typing import Final

from tandem.client.cluster_access import ClusterAccess
from tandem.client.core import parse_addresses
from tandem.spark.option_reader import TLS_OPTIONS, OptionReader
from tandem.wire.errors import ArgumentError
from tandem.wire.frame_seal import Signatures

CLUSTER_OPTIONS: Final = (
    "nameServers",
    "nameServer",
    "accessKey",
    "secretKey",
    "signatures",
    *TLS_OPTIONS,
)

_NOT_GIVEN: Final = ("not-given:9876",)
"""Of options that are refused."""


def read_access(given: OptionReader) -> ClusterAccess:
    """Return what a client has to know of its cluster. Errors are noted in `given`."""
    keys = "accessKey", "secretKey"
    access_key, secret_key = (given.text(name) or "" for name in keys)
    if bool(access_key) != bool(secret_key) or (keys[0] in given) != (keys[1] in given):
        given.refuse("accessKey and secretKey go together: give both or neither", *keys)
        access_key = secret_key = ""
    signatures = given.choice("signatures", (Signatures.REPLAY_PROOF.value, Signatures.ANY.value))
    servers, tls = _name_servers(given), given.tls()
    try:
        return ClusterAccess(
            servers or _NOT_GIVEN, access_key, secret_key, signatures=signatures, tls=tls
        )
    except ArgumentError as error:
        given.refuse(str(error), *keys)
        return ClusterAccess(servers or _NOT_GIVEN)


def _name_servers(given: OptionReader) -> tuple[str, ...]:
    if "nameServers" in given and "nameServer" in given:
        given.refuse(
            "nameServers and nameServer are the same option: give one", "nameServers", "nameServer"
        )
    text = given.text("nameServers") or given.text("nameServer")
    if text is None:
        given.refuse(
            'nameServers is missing: all of them, as in "host1:9876;host2:9876"', "nameServers"
        )
        return ()
    try:
        return tuple(parse_addresses(text.replace(",", ";")))
    except ValueError as error:
        given.refuse(f"nameServers: {error}", "nameServers")
        return ()
