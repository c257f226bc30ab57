import pickle

import pytest

from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveFault,
    LostBeforeArchivedError,
    NotAnArchiveError,
    NotArchiveFault,
    OldCopyError,
)
from tandem.spark.errors import (
    DataLossError,
    LossCause,
    NotAStoreError,
    OptionError,
    SparkSourceError,
    StoreFault,
    UnknownTopicError,
)
from tandem.spark.live.backfill import BackfillGoneError
from tandem.spark.live.chunks import AnswerError, AnswerFault
from tandem.spark.sink.errors import RowError, SendFailedError, Stored


@pytest.mark.parametrize(
    "error",
    [
        SparkSourceError("what is wrong"),
        OptionError("what is wrong", ["topic"]),
        NotAStoreError("what is wrong", StoreFault.NO_LOG),
        DataLossError("what is wrong", LossCause.CUT, 5),
        LostBeforeArchivedError("what is wrong", LossCause.DELETED, 5),
        ArchiveDamagedError("what is wrong", ArchiveFault.CRC),
        NotAnArchiveError("what is wrong", NotArchiveFault.NOT_EMPTY),
        OldCopyError("what is wrong"),
        UnknownTopicError("what is wrong", ["topic"]),
        BackfillGoneError("what is wrong", 5),
        AnswerError("what is wrong", AnswerFault.MISSING, 5),
        RowError("what is wrong", 5),
        SendFailedError("what is wrong", Stored.UNSAFE),
    ],
)
def test_an_error_of_a_worker_arrives_whole(error: SparkSourceError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), "what is wrong", vars(error))
