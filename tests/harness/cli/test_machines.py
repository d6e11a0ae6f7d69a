"""`shalott prepare` builds the images of the systems that run in containers, and starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shalott.cluster.docker import images
from shalott.core.steps import tell_step
from shalott.harness.cli import machines
from shalott.harness.cli.main import run_command

pytestmark = pytest.mark.unit


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    async def ensure_image(engine: Any, image: str) -> str:
        names.append(image)
        tell_step(f"building the node image ({image}), step 1 of 2, once, about a minute")
        return f"shalott-{image}:abc"

    monkeypatch.setattr(images, "ensure_image", ensure_image)
    monkeypatch.setattr(machines, "choose_backend", lambda wanted, system: None)
    return names


def test_all_images_once(built: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["prepare"]) == 0
    assert sorted(built[:2]) == ["broker", "rabbitmq"] and len(built) == len(set(built))
    told = capsys.readouterr().out.splitlines()
    assert "building the node image (rabbitmq), step 1 of 2, once, about a minute" in told
    assert "shalott-rabbitmq:abc is there." in told


def test_one_system(built: list[str]) -> None:
    assert run_command(["prepare", "--system", "rabbitmq"]) == 0
    assert built == ["rabbitmq"]


def test_what_can_not_be_prepared_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    assert run_command(["prepare", "--system", "atlantis"]) == 254
    assert run_command(["prepare"]) == 254
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and "unknown system atlantis" in told[0]
    assert "cluster docker can't be used: no Docker engine on this machine" in told[1]
