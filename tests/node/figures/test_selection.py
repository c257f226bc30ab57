from node.figures.selection import LEFT_OUT, Selection


def test_a_family_has_as_many_series_as_there_is_room() -> None:
    selection = Selection(series_max=5, with_exporter_names=False)
    assert [selection.room("tandem_acks_total", count) for count in (3, 3, 1)] == [3, 2, 0]
    assert selection.room("tandem_epoch", 1) == 1
    (figure,) = selection.left_out()
    assert (figure.name, figure.labels.pairs, figure.value) == (
        LEFT_OUT,
        (("family", "tandem_acks_total"),),
        2,
    )


def test_the_exporters_names_are_taken_if_they_are_wanted() -> None:
    for wanted in (False, True):
        selection = Selection(series_max=1, with_exporter_names=wanted)
        assert selection.room("rocketmq_producer_tps", 2) == int(wanted)
        assert len(list(selection.left_out())) == int(wanted)
