import pickle

import pytest

from tandem.drill.errors import (
    DrillError,
    InputError,
    InputFault,
    MissingRequirementError,
    NoPromiseError,
    NoScenarioError,
    OutError,
    OutFault,
    Requirement,
    StreamStartError,
    WrongGroupError,
)


@pytest.mark.parametrize(
    "error",
    [
        DrillError("what is wrong"),
        InputError("what is wrong", InputFault.EMPTY),
        OutError("what is wrong", OutFault.IN_USE),
        NoPromiseError("what is wrong", "min_isr"),
        MissingRequirementError("what is wrong", Requirement.LIBRARIES, ["pyspark"]),
        NoScenarioError("what is wrong", "earthquake"),
        WrongGroupError("what is wrong", "slave-loss"),
        StreamStartError("what is wrong", "no such topic"),
    ],
)
def test_an_error_is_its_text_and_travels_between_processes_whole(error: DrillError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), "what is wrong", vars(error))
