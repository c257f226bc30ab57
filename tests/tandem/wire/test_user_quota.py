"""Bounds of a user: which count, and how they travel."""

import msgspec
import pytest

from tandem.wire.access_control import UserInfo
from tandem.wire.user_quota import BOUND_MAX, UserQuota


@pytest.mark.parametrize(
    ("own", "of_the_file", "counts"),
    [(None, None, None), (None, 5, 5), (7, 5, 7), (0, 5, 0), (7, None, 7), (0, None, 0)],
)
def test_a_bound_of_its_own_comes_before_that_of_the_file(
    own: int | None, of_the_file: int | None, counts: int | None
) -> None:
    quota = UserQuota(connections_max=own, bytes_per_second=3)
    found = quota.over(UserQuota(connections_max=of_the_file, requests_per_second=9))
    assert found == UserQuota(counts, 9, 3)
    assert UserQuota(own).over(UserQuota(of_the_file)).has_bounds == bool(counts)


def test_a_user_without_bounds_travels_as_rocketmq_has_it() -> None:
    info = UserInfo("p", "enable", "Normal", "alice")
    assert msgspec.json.encode(info) == (
        b'{"password":"p","userStatus":"enable","userType":"Normal","username":"alice"}'
    )
    bounded = msgspec.structs.replace(info, quota=UserQuota(requests_per_second=5))
    assert msgspec.json.encode(bounded).endswith(b',"quota":{"requestsPerSecond":5}}')


@pytest.mark.parametrize("bound", [-1, BOUND_MAX + 1, 1.5, "1", True])
def test_what_is_no_bound_is_not_taken(bound: object) -> None:
    body = msgspec.json.encode({"requestsPerSecond": bound})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=UserQuota)
