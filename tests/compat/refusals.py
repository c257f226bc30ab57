"""What RocketMQ does and we do not, by design: the scenario, and the reason."""

from typing import Final

COLD: Final = "there is no flow control of cold data: reads come from the page cache or the disk"

UNMEASURED: Final = "what is not measured is left out: the state of the timer wheel"

SETTINGS: Final = (
    "the settings of a name server are those of its cluster file, and stay while it runs"
)

IN_ROUTES: Final = "a topic is in the routes as long as a broker has it"

RESUMED: Final = (
    "only a half that was given up is resumed: any other record would become a second message"
)

STARS: Final = "no answer has a user's secret, so there is none to copy"

NOT_THERE: Final = "who takes away an entry that is not there is answered so"

_OF_FIVE_THREE: Final[dict[tuple[str, str], str]] = {
    ("mqadmin", "getColdDataFlowCtrInfo -b {address}"): COLD,
    ("mqadmin", "setCommitLogReadAheadMode -b {address} -m 0"): COLD,
    ("admin", "resumeCheckHalfMessage of what nobody gave up"): RESUMED,
    ("admin", "updateNameServerConfig"): SETTINGS,
    ("admin", "deleteTopicInNameServer"): IN_ROUTES,
    ("mqadmin", "updateNamesrvConfig -k clusterTest -v true"): SETTINGS,
    ("mqadmin", "getNamesrvConfig, changed"): SETTINGS,
    ("mqadmin", "brokerStatus -b {address}"): UNMEASURED,
    ("admin", "getColdDataFlowCtrInfo"): COLD,
    ("users", "copyUser -f {address} -t {address} -u {new}-c"): STARS,
    ("users", "deleteAcl -b {address} -s User:{new}-a -r Group:g1 -h"): NOT_THERE,
}

REFUSALS: Final[dict[tuple[str, str], str]] = _OF_FIVE_THREE | {
    (f"{suite}55", name): why for (suite, name), why in _OF_FIVE_THREE.items()
}
"""With the tools of 5.5 the same."""
