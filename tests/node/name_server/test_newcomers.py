from node.name_server.newcomers import Newcomers


def test_each_newcomer_is_said_at_once_and_taken_once() -> None:
    newcomers = Newcomers()
    heard: list[set[str]] = []
    newcomers.add("a:1")
    with newcomers.signal.heard_by(lambda: heard.append(newcomers.take())):
        newcomers.add("b:2")
        newcomers.add("b:2")
    newcomers.add("c:3")
    assert heard == [{"a:1", "b:2"}, {"b:2"}]
    assert newcomers.take() == {"c:3"}
    assert newcomers.take() == set()
