"""Whether a node may open its ports as its cluster file says."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from node.errors import ConfigError
from tandem.cluster_file.choices import ClientAccess, ClientAuth, TLSMode
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.frame_seal import Signatures


def check_exposure(config: NodeConfig) -> None:
    """Refuse to start a node that takes orders from anybody, or messages from other machines.

    Raises:
        ConfigError: It has no secret; or it listens beyond this machine without being allowed to.
    """
    cluster, node = config.cluster, config.node
    if not cluster.secret:
        raise ConfigError(
            [
                f"{node.name} has no secret, so it would take orders from anybody: see"
                f" {cluster.file}"
            ],
            setting="cluster.secret_file",
        )
    _check_metrics(config)
    _check_export(config)
    addresses = [node.address]
    if config.group.master_address is not None:
        addresses.append(config.group.master_address.rpartition(":")[0])
    is_beyond = [each for each in addresses if not ipaddress.ip_address(each).is_loopback]
    if is_beyond and has_classic_links(config) and not cluster.security.classic_ha_in_clear:
        raise ConfigError(
            [
                f"{cluster.file}: tls.mode is enforcing, but RocketMQ's replication knows no TLS:"
                f" the log of {node.name} would leave this machine in clear. Make the group fenced;"
                " or, on a network of its own, set security.classic_ha_in_clear: true"
            ],
            setting="security.classic_ha_in_clear",
        )
    if not is_beyond or asks_for_certificates(config):
        return
    if not (asks_for_users(config) or cluster.security.allow_unauthenticated):
        raise ConfigError(
            [
                f"{cluster.file}: {node.name} would listen at {is_beyond[0]}, beyond this machine,"
                " and it asks no client who it is: anybody there could read, write and create"
                " topics. Ask for users: security.clients authenticated or authorized. Or ask for"
                " certificates: tls.mode enforcing, tls.client_auth require. Or, if only those"
                " reach it who may, set security.allow_unauthenticated: true"
            ],
            setting="security.allow_unauthenticated",
        )
    again = (
        "send a signed request again, and " if cluster.security.signatures is Signatures.ANY else ""
    )
    is_in_clear = cluster.tls.mode is not TLSMode.ENFORCING
    if asks_for_users(config) and is_in_clear and not cluster.security.allow_in_clear:
        raise ConfigError(
            [
                f"{cluster.file}: {node.name} would listen at {is_beyond[0]}, beyond this machine,"
                f" and take requests in clear: who can listen there can {again}read all messages."
                " Set tls.mode: enforcing. Or, on a network of its own, set"
                " security.allow_in_clear: true"
            ],
            setting="security.allow_in_clear",
        )


def _check_metrics(config: NodeConfig) -> None:
    """Beyond this machine, who asks for figures shows a certificate; or the file says otherwise."""
    place, cluster = config.metrics_place, config.cluster
    if place is None or ipaddress.ip_address(place[0]).is_loopback:
        return
    where = f"{cluster.file}: {config.node.name} would serve metrics at {place[0]}, beyond this"
    if not (asks_for_certificates(config) or cluster.metrics.allow_unauthenticated):
        raise ConfigError(
            [
                f"{where} machine, to anybody: they have the names of all topics and groups. Ask"
                " for certificates: tls.mode enforcing, tls.client_auth require. Or set"
                " metrics.allow_unauthenticated: true; or metrics.address: 127.0.0.1"
            ]
        )
    if cluster.tls.mode is not TLSMode.ENFORCING and not cluster.metrics.allow_in_clear:
        raise ConfigError(
            [
                f"{where} machine, in clear. Set tls.mode: enforcing; or, on a network of its own,"
                " metrics.allow_in_clear: true"
            ]
        )


def _check_export(config: NodeConfig) -> None:
    """Figures, and the token of the collector, leave this machine in clear only if that is said."""
    metrics = config.cluster.metrics
    url = urlsplit(metrics.otlp_endpoint or "")
    if url.scheme != "http" or metrics.allow_in_clear or _is_here(url.hostname or ""):
        return
    raise ConfigError(
        [
            f"{config.cluster.file}: {config.node.name} would send metrics to {url.netloc}, beyond"
            " this machine, in clear: they have the names of all topics and groups. Give an"
            " https:// URL; or, on a network of its own, metrics.allow_in_clear: true"
        ],
        setting="metrics.otlp_endpoint",
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def asks_for_certificates(config: NodeConfig) -> bool:
    """Whether nobody is served who has no certificate of the cluster's CA."""
    tls = config.cluster.tls
    return tls.mode is TLSMode.ENFORCING and tls.client_auth is ClientAuth.REQUIRE


def asks_for_users(config: NodeConfig) -> bool:
    """Whether nobody is served who does not sign as a user."""
    return config.cluster.security.clients is not ClientAccess.OPEN


def has_classic_links(config: NodeConfig) -> bool:
    """Whether others copy the log in clear, where everything else has TLS."""
    if config.cluster.tls.mode is not TLSMode.ENFORCING:
        return False
    return bool(config.group.learners or (config.peers and not config.is_fenced))
