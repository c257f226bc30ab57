from tandem.spark.jobs.runner import HereRunner


def test_results_come_in_order() -> None:
    """Those of tasks do as well: see `test_start`."""
    assert list(HereRunner().run(str, [3, 1, 2])) == ["3", "1", "2"]
    assert HereRunner().parallelism == 1
