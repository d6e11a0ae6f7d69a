"""One store for the tests that only look at it, and a client that asks without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from shalott.harness.serve.app import build_app
from tests.world.harness.served_store import make_store

BASE = "http://127.0.0.1:8017"


class Asking:
    """Asks the pages of one store, one question after the other."""

    def __init__(self, store: Path, host: str = "127.0.0.1") -> None:
        self.app = build_app(store, "store", host=host)

    def get(
        self, path: str, params: Any = None, headers: Any = None, method: str = "GET"
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                return await client.request(method, path, params=params, headers=headers)

        return asyncio.run(ask())

    def told(self, path: str, **parameters: Any) -> Any:
        answer = self.get(f"/api{path}", parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def page(self, path: str, **parameters: Any) -> str:
        answer = self.get(path, parameters)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("served") / "store")


@pytest.fixture(scope="session")
def client(store: Path) -> Asking:
    return Asking(store)
