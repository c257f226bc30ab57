"""What `metrics:` of a cluster file may say."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tandem.cluster_file.settings import MetricsSettings
    from tandem.cluster_file.yaml_reader import Reader


def check_metrics(reader: Reader, settings: MetricsSettings) -> None:
    """Complain about an address that is none, and about what does not fit the collector."""
    if settings.address is not None:
        try:
            ipaddress.IPv4Address(settings.address)
        except ValueError:
            reader.complain(
                "metrics.address",
                f"{settings.address!r} is not an IPv4 address; give one of the machine, or"
                " 0.0.0.0 for all of them",
            )
    if settings.otlp_endpoint is None:
        for key in ("otlp_headers_file", "otlp_ca_file"):
            if getattr(settings, key) is not None:
                reader.complain(
                    f"metrics.{key}", "is for exports; give otlp_endpoint, too, or leave it out"
                )
        return
    if wrong := _what_is_wrong(settings.otlp_endpoint):
        reader.complain("metrics.otlp_endpoint", f"{wrong}; give http://HOST:4318 or https://HOST")
    elif settings.otlp_ca_file is not None and urlsplit(settings.otlp_endpoint).scheme == "http":
        reader.complain(
            "metrics.otlp_ca_file", "is for https://, and otlp_endpoint is http://: none is checked"
        )


def _what_is_wrong(endpoint: str) -> str:
    """Return why an endpoint cannot be dialled, in words; empty if it can.

    What may hold a secret is not shown.
    """
    try:
        url = urlsplit(endpoint)
        is_place = bool(url.hostname) and url.port != 0
    except ValueError:
        return "is no URL"
    if "@" in url.netloc or url.query or url.fragment:
        return (
            "has more than a host, a port and a path; a name, a password or a token belongs into"
            " otlp_headers_file"
        )
    if not (endpoint.isascii() and endpoint.isprintable()) or " " in endpoint:
        return "has characters that no URL has"
    if url.scheme not in ("http", "https") or not is_place:
        return f"{endpoint!r} is not the URL of a collector"
    return ""
