from node.tables.deleted import Deleted


def test_offsets_go_with_their_topic_and_with_their_group_if_that_is_asked_for() -> None:
    record = Deleted(topics=["T"], groups=["g"], offsets_of_groups=["h"])
    gone = {key: record.is_gone(key) for key in ("T@x", "U@g", "U@h", "U@x", "TT@x", "U@hh")}
    assert [key for key, is_gone in gone.items() if is_gone] == ["T@x", "U@h"]
