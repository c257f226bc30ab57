import pickle

import pytest

from tandem.log.errors import (
    BadRequestError,
    LogToolError,
    MissingPackageError,
    NoRepair,
    NoStore,
    NotAStoreError,
    OutputError,
    RepairError,
    RequestFault,
    WorkerError,
)


@pytest.mark.parametrize(
    "error",
    [
        NotAStoreError("what is wrong", "/store", NoStore.NO_LOG),
        BadRequestError("what is wrong", RequestFault.CUT_IN_RECORD, "/store", 100),
        WorkerError("what is wrong"),
        MissingPackageError("what is wrong", "pyarrow"),
        OutputError("what is wrong", "/out"),
        RepairError("what is wrong", NoRepair.STORE, 2),
    ],
)
def test_an_error_of_a_worker_arrives_whole(error: LogToolError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), "what is wrong", vars(error))
