"""Steps that take long, reported to what shows progress: "building the node image, step 3 of 6".

They go through the standard library's logging, under a name of their own, so that they stand in
log.txt too, and code that takes a step needs to know no listener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("shalott.steps")


def tell_step(sentence: str) -> None:
    """From any thread."""
    _log.info("%s", sentence)


@contextmanager
def steps_told(listen: Callable[[str], None]) -> Iterator[None]:
    """While it lasts, ``listen`` is called with each step, in the thread that takes it."""
    handler = _Listener(listen)
    before = _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before)


class _Listener(logging.Handler):
    def __init__(self, listen: Callable[[str], None]) -> None:
        super().__init__()
        self._listen = listen

    def emit(self, record: logging.LogRecord) -> None:
        self._listen(record.getMessage())
