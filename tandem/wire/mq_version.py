"""The versions of RocketMQ that clients name by number in every frame."""

from __future__ import annotations

from typing import Final

MQ_VERSIONS: Final = {
    37: "3.0.11",
    121: "3.4.9",
    317: "4.5.2",
    393: "4.9.0",
    399: "4.9.3",
    401: "4.9.4",
    407: "4.9.7",
    409: "4.9.8",
    413: "5.0.0",
    441: "5.1.4",
    453: "5.2.0",
    473: "5.3.0",
    475: "5.3.1",
    477: "5.3.2",
    479: "5.3.3",
    481: "5.3.4",
}
"""Those that clients have; the others are shown by their number."""


def version_text(version: int) -> str:
    """Return a version of RocketMQ by its number in requests, such as "5.3.3".

    Source: RocketMQ 5.3.3, MQVersion.Version.
    """
    return MQ_VERSIONS.get(version, str(version))
