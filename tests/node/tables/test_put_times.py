import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tables.put_times import STEP_NAMES, PutTimes, distribution_text


def test_nothing_was_put() -> None:
    times = PutTimes()
    assert distribution_text(times.counts(0)) == "".join(f"{name}:0 " for name in STEP_NAMES)
    assert (times.max_ms, times.percentile_ms(0, 0.99)) == (0, 0)


def test_what_waits_for_nobody_takes_no_time() -> None:
    times = PutTimes()
    times.waited(3, 0.020)
    assert distribution_text(times.counts(10)).startswith("[<=0ms]:7 [0~10ms]:0 [10~50ms]:3 ")
    assert times.percentile_ms(10, 0.7) == 0
    assert times.percentile_ms(10, 0.99) == pytest.approx(20)


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0, "[<=0ms]"),
        (0.0001, "[0~10ms]"),
        (0.010, "[0~10ms]"),
        (0.0101, "[10~50ms]"),
        (0.75, "[500ms~1s]"),
        (4.5, "[4~5s]"),
        (10, "[5~10s]"),
        (1e6, "[10s~]"),
    ],
)
def test_each_time_has_its_step(seconds: float, name: str) -> None:
    times = PutTimes()
    times.waited(5, seconds)
    assert f"{name}:5 " in distribution_text(times.counts(5))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(1e-6, 20)), min_size=1, max_size=30),
    st.sampled_from([0.5, 0.99, 0.999]),
)
def test_a_percentile_is_right_but_for_a_tenth(waits: list[tuple[int, float]], part: float) -> None:
    times = PutTimes()
    for count, seconds in waits:
        times.waited(count, seconds)
    every = sorted(seconds * 1000 for count, seconds in waits for _ in range(count))
    wanted = next(ms for at, ms in enumerate(every, 1) if at >= len(every) * part)
    assert wanted * 0.999 <= times.percentile_ms(len(every), part) <= max(0.001, wanted * 1.1)
    assert times.max_ms == max(every)
