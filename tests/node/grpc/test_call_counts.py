import pytest

from node.figures.families import FAMILY_OF
from node.grpc.call_counts import CallCounts, outcome_name
from node.grpc.protocol import messages as pb
from tests.node.figures.seen import by_name


@pytest.mark.parametrize(
    ("status", "code", "name"),
    [
        (0, pb.OK, "ok"),
        (0, pb.TOO_MANY_REQUESTS, "too_many_requests"),
        (0, pb.MULTIPLE_RESULTS, "multiple_results"),
        (0, 77, "other"),
        (12, pb.OK, "grpc_unimplemented"),
        (99, pb.OK, "grpc_other"),
        (None, pb.OK, "given_up"),
    ],
)
def test_outcomes_are_names_and_no_stranger_makes_one(
    status: int | None, code: int, name: str
) -> None:
    assert outcome_name(status, code) == name


def test_calls_are_counted_by_method_and_outcome_with_their_time() -> None:
    counts = CallCounts()
    counts.connections_count = 2
    for _ in range(3):
        counts.began("SendMessage")
    counts.ended("SendMessage", "ok", 0.002)
    counts.ended("SendMessage", "ok", 0.3)
    counts.refused("grpc_unimplemented")
    found = by_name(counts.figures())
    assert found["tandem_grpc_connections"] == [({}, 2)]
    assert found["tandem_grpc_open_calls"] == [({"method": "SendMessage"}, 1)]
    assert found["tandem_grpc_calls_total"] == [
        ({"method": "SendMessage", "outcome": "ok"}, 2),
        ({"method": "other", "outcome": "grpc_unimplemented"}, 1),
    ]
    buckets = {labels["le"]: count for labels, count in found["tandem_grpc_call_seconds_bucket"]}
    assert (buckets["0.001"], buckets["0.0025"], buckets["0.5"]) == (0, 1, 2)
    assert set(found) <= set(FAMILY_OF)
