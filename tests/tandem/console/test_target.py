from tandem.client.cluster_access import ClusterAccess
from tandem.console.target import Target, anonymous


def test_nobodys_rights_are_lent() -> None:
    rich = ClusterAccess("a:1", "me", "my-secret", secret="cluster", as_operator=True)
    poor = anonymous(rich)
    assert poor == ClusterAccess("a:1")
    assert poor.credentials() is None
    access = Target(poor, has_users=True).access_of("shop", "secret-of-shop")
    assert (access.access_key, access.secret_key) == ("shop", "secret-of-shop")
    assert not access.as_operator
