import logging
from pathlib import Path

from tandem.drill.consumers.client_log import CLIENTS, client_log


def test_clients_log_to_the_file_while_the_block_runs(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "consumers.log"
    logger = logging.getLogger(f"{CLIENTS}.group_reader")

    with client_log(path):
        logger.warning("the queue is read again")
    logger.info("after it")

    assert path.read_text().count("\n") == 1
    assert logging.getLogger(CLIENTS).handlers == []
    assert logging.getLogger(CLIENTS).propagate
