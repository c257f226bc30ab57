from tandem.spark.live.link import Link
from tests.tandem.client.fake_broker import MASTER, FakeSocket
from tests.tandem.spark.live.live_world import LiveWorld


def test_a_link_is_usable_until_its_broker_hangs_up() -> None:
    world = LiveWorld()
    opened = FakeSocket(world.master)
    link = Link(MASTER, opened, world.core(), is_master=True)
    assert link.is_usable()
    opened.broker = None
    assert not link.is_usable()
