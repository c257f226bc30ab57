"""Which topics and groups the consumers' load has."""

from tandem.drill.consumers.names import RECONSUME_MAX, Topics, groups_of, letters_group


def test_every_topic_is_read_by_a_group_and_each_group_has_members() -> None:
    topics = Topics("-1a")
    groups = groups_of(topics)

    assert {topic for group in groups for topic in group.topics} == set(topics.queue_counts)
    assert min(group.members for group in groups) >= 1
    assert [group.reconsume_max for group in groups if group.reconsume_max] == [RECONSUME_MAX]
    (orderly,) = (group for group in groups if group.is_orderly)
    assert orderly.members > 1, "a queue goes from one member to another"
    assert all(topics.queue_counts[topic] >= orderly.members for topic in orderly.topics)


def test_two_drills_of_one_cluster_have_no_name_in_common() -> None:
    def names(suffix: str) -> set[str]:
        topics = Topics(suffix)
        groups = (group.name for group in groups_of(topics))
        return {*topics.queue_counts, *groups, letters_group(topics)}

    assert len(names("-1a")) == len(names("")) == 9
    assert not names("-1a") & names("-2b")
