"""RabbitMQ's log as node events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from broker.events import Event


def read_log(path: Path) -> Iterator[Event]:
    yield from ()
