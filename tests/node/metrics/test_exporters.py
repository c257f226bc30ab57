import sys
from pathlib import Path

import msgspec
import pytest

from node.errors import ConfigError
from node.metrics.exporters import exporter_of
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.cluster_file.settings import MetricsSettings
from tests.node.world import fenced_cluster

ENCODER = "opentelemetry.exporter.otlp.proto.common.metrics_encoder"


def node(directory: Path, **metrics: str) -> NodeConfig:
    config = fenced_cluster(directory)
    settings = msgspec.structs.replace(MetricsSettings(), **metrics)
    return msgspec.structs.replace(config, metrics=settings).node("a1")


def test_nothing_is_exported_unless_there_is_an_endpoint(tmp_path: Path) -> None:
    assert exporter_of(node(tmp_path)) is None
    assert exporter_of(node(tmp_path, otlp_endpoint="http://127.0.0.1:4318")) is not None


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ENCODER, None)
    for module in ("otlp_exporter", "otlp_request"):
        monkeypatch.delitem(sys.modules, f"node.metrics.{module}", raising=False)
    assert exporter_of(node(tmp_path)) is None
    with pytest.raises(ConfigError) as caught:
        exporter_of(node(tmp_path, otlp_endpoint="http://127.0.0.1:4318"))
    assert caught.value.setting == "metrics.otlp_endpoint"
    assert "tandem-mq[otlp]" in str(caught.value)


@pytest.mark.parametrize("key", ["otlp_headers_file", "otlp_ca_file"])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, key: str) -> None:
    for content in (None, "no header and no certificate"):
        if content is not None:
            (tmp_path / "file").write_text(content)
            (tmp_path / "file").chmod(0o600)
        with pytest.raises(ConfigError) as caught:
            exporter_of(node(tmp_path, otlp_endpoint="https://127.0.0.1:4318", **{key: "file"}))
        assert caught.value.setting == f"metrics.{key}"
        assert str(tmp_path / "file") in str(caught.value)
        assert "no header and" not in str(caught.value)
