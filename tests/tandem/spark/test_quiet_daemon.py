import pytest

from tandem.spark.quiet_daemon import HUNG_UP, quietly


def test_a_worker_whose_jvm_has_hung_up_is_done_and_others_fail_as_before() -> None:
    def serve(error: type[Exception] | None) -> int:
        if error is not None:
            raise error
        return 0

    serves = quietly(serve)
    assert serves(None) == 0
    assert serves(BrokenPipeError) == HUNG_UP
    assert serves(ConnectionResetError) == HUNG_UP
    with pytest.raises(FileNotFoundError):
        serves(FileNotFoundError)
