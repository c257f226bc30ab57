import pytest

from tandem.console.errors import APIError
from tandem.console.incoming import Incoming, Places, incoming

PLACES = Places.of(["127.0.0.1", "[::1]", "Ops.Example"], 9880, is_secure=False)


def came(target: bytes = b"/", method: bytes = b"GET", **headers: bytes) -> Incoming:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return incoming(method, target, {b"host": b"127.0.0.1:9880", **given}, b"{}", PLACES)


def test_path_and_parameters_are_decoded_part_by_part() -> None:
    found = came(b"/api/v1/topics/a%2Fb%25?key=a+b%2B&empty=")
    assert found.parts == ("api", "v1", "topics", "a/b%")
    assert found.query == {"key": "a b+", "empty": ""}
    assert came(b"/").parts == ("",)


@pytest.mark.parametrize("host", [b"[::1]:9880", b"ops.example:9880", b"OPS.EXAMPLE:9880"])
def test_each_name_of_the_host_will_do(host: bytes) -> None:
    assert came(host=host, origin=b"http://" + host.lower()).method == "GET"


def test_the_usual_port_may_be_left_out() -> None:
    places = Places.of(["ops.example"], 443, is_secure=True)
    assert {"ops.example", "ops.example:443"} == places.hosts
    assert "https://ops.example" in places.origins
    assert "ops.example" not in Places.of(["ops.example"], 443, is_secure=False).hosts


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (b"x", "no_route"),
        (b"", "no_route"),
        (b"/%", "bad_parameter"),
        (b"/?%ff=1", "bad_parameter"),
        (b"/?a=1&a=1", "bad_parameter"),
        (b"/?a=" + b"x" * 33_001, "bad_parameter"),
    ],
)
def test_what_cannot_be_read_is_an_error(target: bytes, code: str) -> None:
    with pytest.raises(APIError) as caught:
        came(target)
    assert caught.value.code == code


def test_the_first_cookie_of_a_name_counts() -> None:
    found = came(cookie=b"a=1; b=2;a=3; c")
    assert found.cookies == {"a": "1", "b": "2", "c": ""}


def test_the_body_is_an_object() -> None:
    assert came().json() == {}
