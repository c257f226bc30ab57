from node.shadow.config import ShadowUser
from tandem.wire.acl_signature import AclKey
from tandem.wire.remoting_command import RemotingCommand


def test_a_request_says_who_sends_it_and_is_signed_with_all_its_fields_and_its_body() -> None:
    user = ShadowUser("me", "some secret")
    plain = RemotingCommand(7, 3, ext={"topic": "T"}, body=b"body")
    signed = user.signed(plain)
    fields = signed.ext_fields()
    assert (signed.code, signed.opaque, signed.body) == (7, 3, b"body")
    assert fields.keys() == {"topic", "AccessKey", "Signature"}
    key = AclKey("some secret")
    assert key.is_signed(fields, b"body")
    assert not key.is_signed(fields, b"another")
    assert not key.is_signed({**fields, "topic": "U"}, b"body")
    assert plain.ext_fields() == {"topic": "T"}


def test_what_is_shown_of_a_user_has_no_secret() -> None:
    assert repr(ShadowUser("me", "some secret")) == "ShadowUser('me', '***')"
