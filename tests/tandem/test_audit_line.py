import msgspec

from tandem.audit_line import AuditLine, moment


def test_a_line_says_what_there_is_to_say_and_no_more() -> None:
    line = AuditLine(
        time=moment(1_795_882_363_563),
        node="broker-a-0",
        who="user alice",
        from_="10.0.0.9:4711",
        code=17,
        request="UPDATE_AND_CREATE_TOPIC",
        result="SUCCESS",
    )
    assert line.text == (
        '{"time":"2026-11-28T16:12:43.563Z","node":"broker-a-0","who":"user alice",'
        '"from":"10.0.0.9:4711","code":17,"request":"UPDATE_AND_CREATE_TOPIC","result":"SUCCESS"}'
    )
    assert msgspec.json.decode(line.text, type=AuditLine) == line
