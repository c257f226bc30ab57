from pathlib import Path

import pytest

from tests.tandem.cluster_file.files import FENCED, load, problems


@pytest.mark.parametrize(
    ("metrics", "key"),
    [
        ("address: localhost", "address"),
        ("otlp_endpoint: collector.example", "otlp_endpoint"),
        ("otlp_endpoint: 'grpc://collector.example:4317'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://a:99999'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://a:x'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://a:0'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://[::1'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://a/b c'", "otlp_endpoint"),
        ("otlp_endpoint: 'http://a/\u00e9'", "otlp_endpoint"),
        ("otlp_endpoint: ''", "otlp_endpoint"),
        ("otlp_headers_file: headers", "otlp_headers_file"),
        ("otlp_ca_file: ca.pem", "otlp_ca_file"),
        ("otlp_endpoint: 'http://a', otlp_ca_file: ca.pem", "otlp_ca_file"),
        ("otlp_endpoint: 'http://a', otlp_interval_ms: 999", "otlp_interval_ms"),
    ],
)
def test_what_fits_no_collector_is_named(tmp_path: Path, metrics: str, key: str) -> None:
    (problem,) = problems(tmp_path, f"metrics: {{{metrics}}}\n{FENCED}")
    assert problem.startswith(f"cluster.yaml:1: metrics.{key}: ")


@pytest.mark.parametrize(
    "endpoint", ["https://me:Secret9@a", "http://a/?k=Secret9", "http://a#Secret9"]
)
def test_a_secret_in_an_endpoint_is_refused_and_not_shown(tmp_path: Path, endpoint: str) -> None:
    (problem,) = problems(tmp_path, f"metrics: {{otlp_endpoint: '{endpoint}'}}\n{FENCED}")
    assert "otlp_headers_file" in problem
    assert "Secret9" not in problem


@pytest.mark.parametrize(
    "endpoint",
    [
        "HTTPS://a",
        "http://127.0.0.1:4318",
        "https://a.example/otlp/v1/metrics",
        "http://[::1]:4318",
    ],
)
def test_an_endpoint_is_a_url(tmp_path: Path, endpoint: str) -> None:
    config = load(tmp_path, f"metrics: {{otlp_endpoint: '{endpoint}'}}\n{FENCED}")
    assert config.metrics.otlp_endpoint == endpoint
