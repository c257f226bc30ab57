from tandem.cluster.spec import example_text
from tandem.cluster_file.catalogue import catalogue
from tandem.cluster_file.load import load_config
from tandem.views.file_settings import values_of
from tests.support.paths import ROOT


def test_each_group_and_each_node_has_its_own_values() -> None:
    settings = catalogue(example_text())
    pairs = values_of(settings.values(), load_config(ROOT / "cluster.yaml"))
    assert {setting.name for setting, _ in pairs} == set(settings)
    values = {value.name: value for _, value in pairs}
    assert values["store.flush_disk_type"].value == "ASYNC_FLUSH"
    assert not values["store.flush_disk_type"].is_changed
    assert values["groups.broker-a.kind"].value == "fenced"
    assert values["nodes.broker-a-2.address"].value == "127.0.0.3"
    assert values["nodes.broker-a-2.address"].is_needed
