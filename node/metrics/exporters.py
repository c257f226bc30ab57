"""What a node exports its figures with, if its cluster file names where to."""

from __future__ import annotations

from typing import Final, Protocol

from node.errors import ConfigError
from node.metrics.collection import Collection
from tandem.cluster_file.cluster_config import NodeConfig

_OF_THE_EXTRA: Final = ("opentelemetry", "google")


class Exporter(Protocol):
    """Exports the figures of one node."""

    async def run(self, collection: Collection) -> None:
        """Export until cancelled; nothing is raised for what a collector does."""


def exporter_of(config: NodeConfig) -> Exporter | None:
    """Return what exports the figures of a node; None: nothing does.

    Raises:
        ConfigError: What it needs is not installed, or a file that the settings name is no good.
    """
    settings = config.cluster.metrics
    if settings.otlp_endpoint is None:
        return None
    try:
        # An extra, and a tenth of a second: only where there is an endpoint.
        from node.metrics.otlp_collector import collector_of  # noqa: PLC0415
        from node.metrics.otlp_exporter import OTLPExporter  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_THE_EXTRA:
            raise
        raise ConfigError(
            [
                f"{config.cluster.file}: metrics.otlp_endpoint needs OpenTelemetry's SDK, which is"
                " not installed here: pip install 'tandem-mq[otlp]', or take the setting out"
            ],
            setting="metrics.otlp_endpoint",
        ) from error
    return OTLPExporter(
        collector_of(settings, config.cluster.file.parent),
        interval_seconds=settings.otlp_interval_ms / 1000,
    )
