"""For the tests of a connection: nothing that goes wrong may stay unheard."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_escaped_errors() -> Iterator[None]:
    """Fail a test in which a callback raised, or a task failed and nobody asked why.

    asyncio can only log it.
    """
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(self.format(record))

    keep = Keep(logging.ERROR)
    logging.getLogger("asyncio").addHandler(keep)
    try:
        yield
        gc.collect(1)  # a task says so when it is collected
    finally:
        logging.getLogger("asyncio").removeHandler(keep)
    assert not records, "\n".join(records)
