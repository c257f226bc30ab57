import pytest
from trio.testing import MockClock

from tandem.console.setting_api import HIDDEN, shown
from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of


async def test_a_node_says_what_it_goes_by_without_secrets(autojump_clock: MockClock) -> None:
    async with browser_of(FakeCluster()) as browser:
        found = (await browser.get("/api/v1/settings")).json
        assert found == {"file": "", "nodes": ["a", "b", "c"], "settings": []}
        node = await browser.get("/api/v1/settings?node=a")
        assert node.json["settings"] == {
            "brokerName": "g", "someSecretKey": HIDDEN, "secretFile": "/data/secret"
        }  # fmt: skip
        assert b"hush" not in node.body
        for name in ("d", "</script>", "%00"):
            assert (await browser.get(f"/api/v1/settings?node={name}")).code == "no_node"


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("secret", "x", HIDDEN),
        ("user_password", "x", HIDDEN),
        ("loginToken", "x", HIDDEN),
        ("secret_file", "/a/secret", "/a/secret"),
        ("key_password_file", "/a", "/a"),
        ("password", "", ""),
        ("endpoints", ["http://me:pass@h:1"], ["http://not-shown@h:1"]),
        ("names", {"password": "x", "b": 1}, {"password": HIDDEN, "b": 1}),
        ("port", 1, 1),
        ("on", True, True),
        ("none", None, None),
    ],
)
def test_a_secret_is_not_shown(key: str, value: object, seen: object) -> None:
    assert shown(key, value) == seen
