from types import SimpleNamespace

from tandem.spark.jobs.findings import has_findings


def test_faults_and_broken_promises_are_findings() -> None:
    assert has_findings(SimpleNamespace(faults=["one"]))
    assert has_findings(SimpleNamespace(promises_broken=1))
    assert not has_findings(SimpleNamespace(faults=[]))
    assert not has_findings([])
