"""The nights that are shown and shipped: files that can be read, and commands that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shalott.harness.cli.commands import make_app
from shalott.harness.matrix.cells import expand
from shalott.harness.matrix.definition import parse, read_matrix
from shalott.harness.matrix.night import parse_shard
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

CI = ROOT / "examples" / "ci"
PAGES = ("docs/how-to/run-a-night.md", "docs/getting-started/a-night-in-ci.md")


def flags_of_matrix() -> set[str]:
    import typer

    group: Any = typer.main.get_command(make_app(["matrix"]))
    return {name for each in group.commands["matrix"].params for name in each.opts}


def scripts(path: Path) -> list[str]:
    """Every command that a CI file runs."""
    loaded = yaml.safe_load(path.read_text())
    if path.name.startswith("github"):
        steps = [step for job in loaded["jobs"].values() for step in job["steps"]]
        return [step["run"] for step in steps if "run" in step]
    jobs = [job for job in loaded.values() if isinstance(job, dict)]
    return [line for job in jobs for line in job.get("script", [])]


def test_our_own_night_has_cells() -> None:
    cells = expand(read_matrix(ROOT / "nightly.toml").definition, "a-night").cells
    assert len(cells) > 40 and {cell.request.cluster for cell in cells} == {"sim", "docker"}
    assert all(len(cell.seeds) > 1 for cell in cells)
    assert {cell.request.system for cell in cells} >= {"rabbitmq", "rocketmq"}


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_a_page_is_a_file(page: str) -> None:
    """All of its blocks, one after the other."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.DOTALL)
    assert expand(parse(tomllib.loads("\n".join(blocks)), "the page"), "a-night").cells


def test_the_workflow_of_github_is_one() -> None:
    loaded = yaml.safe_load((CI / "github-nightly.yml").read_text())
    assert re.fullmatch(
        r"(\S+ ){4}\S+", loaded[True]["schedule"][0]["cron"]
    )  # `on` is true in YAML
    shards = loaded["jobs"]["shard"]["strategy"]["matrix"]["shard"]
    (night,) = [text for text in scripts(CI / "github-nightly.yml") if "--shard" in text]
    assert f"/{len(shards)}" in night
    for job in loaded["jobs"].values():
        assert job["runs-on"] and all("uses" in step or "run" in step for step in job["steps"])
        assert any("upload-artifact" in step.get("uses", "") for step in job["steps"])


def test_the_pipeline_of_gitlab_is_one() -> None:
    loaded = yaml.safe_load((CI / "gitlab-nightly.yml").read_text())
    jobs = {name: job for name, job in loaded.items() if name not in ("stages", ".nightly")}
    for job in jobs.values():
        assert job["stage"] in loaded["stages"] and job["script"] and job["artifacts"]["paths"]
    (merge,) = [text for text in scripts(CI / "gitlab-nightly.yml") if "--merge" in text]
    assert merge.count(" store-") == jobs["night"]["parallel"]


@pytest.mark.parametrize("name", ["github-nightly.yml", "gitlab-nightly.yml"])
def test_their_commands_have_flags_that_there_are(name: str) -> None:
    commands = [text for text in scripts(CI / name) if text.startswith("shalott matrix")]
    assert len(commands) == 2
    for command in commands:
        assert set(re.findall(r"--[a-z-]+", command)) <= flags_of_matrix()
    assert parse_shard("2/4") == (2, 4)
