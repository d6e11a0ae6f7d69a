"""What a test offers at the doors is gone after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.workloads.record import WORKLOADS


@pytest.fixture(autouse=True)
def nothing_stays_offered() -> Iterator[None]:
    yield
    SYSTEMS.withdraw("memory")
    WORKLOADS.withdraw("memory")
