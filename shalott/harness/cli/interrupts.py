"""Ctrl-C while modules load: one line, and exit code 130.

An import that is interrupted may turn the KeyboardInterrupt into anything (an extension module
raises ImportError, a plug-in catches all), and nothing is there yet that would have to be put in
order. So as long as ``quiet_exit`` is entered the process ends in the signal's handler. It
stands before every other import, and imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from shalott.core.errors import ShalottError

EXIT_INTERRUPTED = 130
SENTENCE = "interrupted before the run began"

_last_words: list[Callable[[str], None]] = []


def on_interrupt(say: Callable[[str], None]) -> None:
    """Have ``say`` called with the sentence before such an exit, in place of what was before."""
    _last_words[:] = [say]


def interrupted() -> None:
    """Calls what ``on_interrupt`` was given; if that fails, the exit goes on nevertheless."""
    for say in _last_words:
        try:
            say(SENTENCE)
        except (OSError, ShalottError):  # a full disk, a directory that is gone
            return


@contextmanager
def quiet_exit() -> Iterator[None]:
    """While it lasts, SIGINT ends the process in one line. Only in the main thread; elsewhere
    nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit(number: int, frame: FrameType | None) -> None:
    interrupted()
    os.write(2, f"shalott: {SENTENCE}\n".encode())
    os._exit(EXIT_INTERRUPTED)
