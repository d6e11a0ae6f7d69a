"""A node on loopback with nothing behind its AMQP layer but test doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.amqp.doubles import NodeThread


@pytest.fixture
def node() -> Iterator[NodeThread]:
    with NodeThread() as running:
        yield running
