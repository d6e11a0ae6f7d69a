"""until: ask a running node again and again, where nothing tells when something has become so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 30.0
AGAIN_S = 0.01


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(AGAIN_S)
