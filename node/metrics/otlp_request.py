"""Figures as requests of the OpenTelemetry protocol, made by the encoder of OpenTelemetry's SDK.

    figures --> points of the SDK --> encode_metrics --> bytes of a part of a request

A request comes in parts, since to encode thousands of figures at once would stop everybody else.
Parts that follow each other are one request: repeated fields of a protobuf message that is
concatenated are added to each other.

Names and labels are those of an exposition, so that series are the same by either way. The unit is
the ending of the name, if that is one. Counters and histograms are cumulative.

Needs `pip install 'tandem-mq[otlp]'`; nothing else imports it unless there is an endpoint.
Source: OpenTelemetry Protocol 1.x; Protocol Buffers, Encoding, "Last One Wins".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from node.figures.families import FAMILIES, FAMILY_OF, Base, Kind
from node.figures.figure import Column, Figure, Labels, columns, plain
from node.figures.selection import Selection

FIGURES_A_STEP: Final = 32
"""After this many the caller may let others have their turn."""

UNITS: Final = {"_milliseconds": "ms", "_seconds": "s", "_bytes": "By"}
"""By the ending of a name before `_total`. Source: UCUM."""

Point: TypeAlias = NumberDataPoint | HistogramDataPoint
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Times(NamedTuple):
    """When figures are of, and since when counters count, in ms since 1970."""

    now_ms: int
    process_ms: int
    store_ms: int


class OTLPRequests:
    """Writes the figures of one node."""

    def __init__(
        self,
        bases: Mapping[Base, Labels],
        resource: Mapping[str, str],
        *,
        version: str,
        series_max: int,
        with_exporter_names: bool = False,
    ) -> None:
        """Write each family with the labels of its base.

        Args:
            bases: The labels that all figures of a kind have.
            resource: What is said of the node, by the names of OpenTelemetry's conventions.
            version: Of this package.
            series_max: How many points of a family are written.
            with_exporter_names: Whether families with the names of RocketMQ's exporter are.
        """
        self._bases = {base: _attributes(labels.pairs) for base, labels in bases.items()}
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("tandem", version)
        self._series_max = series_max
        self._with_exporter_names = with_exporter_names

    def write(self, figures: Iterable[Figure], times: Callable[[], Times]) -> Iterator[bytes]:
        """Yield the parts of one request; after each, others may have their turn.

        Raises:
            KeyError: a figure is of no family.
        """
        selection = Selection(
            series_max=self._series_max, with_exporter_names=self._with_exporter_names
        )
        histograms = _Histograms()
        left = iter(figures)
        while chunk := list(islice(left, FIGURES_A_STEP)):
            yield self._part(chunk, times(), selection, histograms)
        if beyond := list(selection.left_out()):
            yield self._part(beyond, times(), selection, histograms)

    def _part(
        self, chunk: list[Figure], times: Times, selection: Selection, histograms: _Histograms
    ) -> bytes:
        metrics = []
        for column in columns(chunk):
            family = FAMILY_OF[column.name]
            if FAMILIES[family].kind is Kind.HISTOGRAM:
                whole = histograms.add(column)
                points: list[Point] = [
                    self._histogram_point(family, pairs, found, times) for pairs, found in whole
                ]
            else:
                points = [
                    self._point(family, labels.pairs, value, times)
                    for labels, value in zip(column.labels, column.values, strict=True)
                ]
            if room := selection.room(family, len(points)):
                metrics.append(_metric(family, points[:room]))
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        own = ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")
        part: bytes = encode_metrics(MetricsData(resource_metrics=[own])).SerializeToString()
        return part

    def _labels(self, family: str, pairs: Pairs) -> dict[str, str]:
        return {**self._bases[FAMILIES[family].base], **_attributes(pairs)}

    def _point(self, family: str, pairs: Pairs, value: float, times: Times) -> NumberDataPoint:
        return NumberDataPoint(
            attributes=self._labels(family, pairs),
            start_time_unix_nano=_since_ns(family, times),
            time_unix_nano=times.now_ms * 1_000_000,
            value=value,
        )

    def _histogram_point(
        self, family: str, pairs: Pairs, found: _Buckets, times: Times
    ) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=self._labels(family, pairs),
            start_time_unix_nano=_since_ns(family, times),
            time_unix_nano=times.now_ms * 1_000_000,
            count=found.counts[-1],
            sum=found.sum,
            bucket_counts=[found.counts[0], *(b - a for a, b in pairwise(found.counts))],
            explicit_bounds=found.bounds,
            # Nobody keeps them; the protocol lets them be left out, and the SDK's type not.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )


class _Buckets:
    """A histogram of which the last figure has not come yet."""

    def __init__(self) -> None:
        self.bounds: list[float] = []
        self.counts: list[int] = []
        """Of each bucket with those below it."""
        self.sum = 0.0


class _Histograms:
    """Puts the figures of a histogram together: its buckets, its sum, and at last its count."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Pairs], _Buckets] = {}

    def add(self, column: Column) -> Iterator[tuple[Pairs, _Buckets]]:
        """Take in figures of one name; yield each histogram that is whole by them."""
        family = FAMILY_OF[column.name]
        part = column.name.removeprefix(f"{family}_")
        for labels, value in zip(column.labels, column.values, strict=True):
            pairs = tuple(pair for pair in labels.pairs if pair[0] != "le")
            found = self._open.setdefault((family, pairs), _Buckets())
            if part == "bucket":
                found.counts.append(int(value))
                if (end := dict(labels.pairs)["le"]) != "+Inf":
                    found.bounds.append(float(end))
            elif part == "sum":
                found.sum = value
            else:
                yield pairs, self._open.pop((family, pairs))


def rejected(answer: bytes) -> tuple[int, str] | None:
    """Return how many points a collector has not taken, and why; None if that is no answer."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return None
    return partial.rejected_data_points, partial.error_message


def _attributes(pairs: Pairs) -> dict[str, str]:
    return {name: plain(value) for name, value in pairs}


def _since_ns(family: str, times: Times) -> int:
    ms = times.process_ms if FAMILIES[family].is_of_process else times.store_ms
    return ms * 1_000_000


def _metric(family: str, points: list[Point]) -> Metric:
    cumulative = AggregationTemporality.CUMULATIVE
    data: Gauge | Sum | Histogram
    match FAMILIES[family].kind:
        case Kind.COUNTER:
            data = Sum(
                data_points=[each for each in points if isinstance(each, NumberDataPoint)],
                aggregation_temporality=cumulative,
                is_monotonic=True,
            )
        case Kind.GAUGE:
            data = Gauge([each for each in points if isinstance(each, NumberDataPoint)])
        case Kind.HISTOGRAM:
            data = Histogram(
                [each for each in points if isinstance(each, HistogramDataPoint)], cumulative
            )
    return Metric(name=family, description=FAMILIES[family].help, unit=_unit(family), data=data)


def _unit(family: str) -> str:
    name = family.removesuffix("_total")
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")
