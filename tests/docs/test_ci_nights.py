"""The nights of the CI examples, step by step: what a red night showed is known in the next one.

The runner is tests/world/github_actions.py, which has GitHub's rules. `shalott` is ours; its runs
are a stub's (tests/world/harness/stub_run.py).
"""

from __future__ import annotations

import json
import os
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.sources import ROOT
from tests.world.github_actions import Job, Runner

pytestmark = pytest.mark.explore

EXAMPLES = ROOT / "examples" / "ci"
STUB = ROOT / "tests" / "world" / "harness" / "stub_run.py"
MATRIX = """
name = "nightly"
[night]
deflake = 1
[machine]
cores = 8
[[cells]]
nemesis = ["none", "kill", "pause", "partition"]
"""
SHALOTT = """#!{python}
import os, sys
if sys.argv[1] == "prepare":
    sys.exit(0)
from shalott.harness.matrix import night_runs
if os.environ["STUB"]:
    night_runs.PROGRAM = (sys.executable, "-S", os.environ["STUB"])
from shalott.harness.cli.main import main
words = sys.argv[1:]
if os.environ.get("SHALOTT_COIN_LOAD"):
    words += ["--load", "benchmarks.night_coin"]
main(words)
"""
RED = [["*/kill", "lost"]]


def old_file(path: Path) -> Path:
    """The example as it was: actions/cache alone."""
    loaded = yaml.safe_load((EXAMPLES / "github-nightly.yml").read_text())
    steps = loaded["jobs"]["shard"]["steps"]
    steps[:] = [step for step in steps if not step.get("uses", "").startswith("actions/cache/save")]
    for step in steps:
        step.update({"uses": "actions/cache@v4"} if "/restore@" in step.get("uses", "") else {})
    path.write_text(yaml.safe_dump(loaded, sort_keys=False))
    return path


class Nights:
    """A repository with the example, and its nights. ``stub``: what takes the place of runs."""

    def __init__(self, scratch: Path, stub: str = str(STUB), matrix: str = MATRIX) -> None:
        checkout, programs = scratch / "checkout", scratch / "bin"
        for each in (checkout, programs):
            each.mkdir()
        (checkout / "nightly.toml").write_text(matrix)
        shalott = SHALOTT.format(python=sys.executable)
        for name, text in (("pip", "#!/bin/sh\n"), ("shalott", shalott)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        env = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "STUB": stub}
        self.runner = Runner(checkout, scratch, env)
        self.workflow = EXAMPLES / "github-nightly.yml"

    def run(self, run_id: int, rules: Any = (), attempt: int = 1) -> tuple[list[Job], Job, Any]:
        """The shards' jobs, the summary's, and summary.json."""
        self.runner.env["STUB_RULES"] = json.dumps(rules)
        jobs = self.runner.run(self.workflow, run_id, attempt)
        (last,) = jobs["summary"]
        night = last.workspace / "night" / "summary.json"
        assert night.exists(), last.log
        return jobs["shard"], last, json.loads(night.read_bytes())


def statuses(summary: Any) -> list[tuple[str, str]]:
    return [(one["status"], one["cell"].rpartition("/")[2]) for one in summary["findings"]]


@pytest.mark.nightly("ten starts of the command")
def test_one_shard_forgets_with_the_old_file_and_not_with_the_new_one(tmp_path: Path) -> None:
    """Two red nights of the first shard with each: the runner's rules tell them apart."""
    for name, status in (("new", "Known (1)"), ("old", "New (1)")):
        scratch = tmp_path / name
        scratch.mkdir()
        nights = Nights(scratch, matrix='name = "nightly"\nnight.deflake = 0\n[[cells]]\n')
        if name == "old":
            nights.workflow = old_file(scratch / "old.yml")
        nights.runner.env["STUB_RULES"] = json.dumps([["*", "lost"]])
        for run_id in (1, 2):
            (shard,) = nights.runner.run(nights.workflow, run_id, only="shard")["shard"]
            assert shard.failed, shard.log
        assert status in shard.log, (name, shard.log)


@pytest.mark.nightly("twenty starts of the command, a minute and more")
def test_a_red_finding_is_known_in_the_second_night(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    shards, last, found = nights.run(1, RED)
    assert statuses(found) == [("new", "kill")] and found["planned"] == 4
    assert sorted(job.failed for job in shards) == [False, False, False, True], "one shard is red"
    assert last.failed and "New (1)" in last.summary
    _, _, found = nights.run(1, RED, attempt=2)  # the job is run again: it is the same night
    assert (statuses(found), found["ran"]) == ([("new", "kill")], 4)
    _, last, found = nights.run(2, RED)
    assert statuses(found) == [("known", "kill")], last.log
    assert found["findings"][0]["seen_in"] == ["nightly-1"]
    _, last, found = nights.run(3)
    assert statuses(found) == [("fixed", "kill")] and not last.failed, last.log


class GitLab:
    """A job of GitLab's runner: its cache is restored before ``script`` and, under the same key,
    replaced after it, if ``cache:when`` allows it (on_success if it says nothing)."""

    def __init__(self, nights: Nights, job: Any, scratch: Path) -> None:
        self.nights, self.job, self.scratch = nights, job, scratch
        self.caches: dict[str, Path] = {}

    def run(self, pipeline: int) -> tuple[bool, str]:
        """Whether the first of the parallel jobs succeeded, and its log."""
        work = self.scratch / f"gitlab-{pipeline}"
        shutil.copytree(self.nights.runner.checkout, work)
        names = {"CI_PIPELINE_ID": str(pipeline), "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"}
        env = {**os.environ, **self.nights.runner.env, **names}
        cache = self.job["cache"]
        key, (path,) = string.Template(cache["key"]).substitute(names), cache["paths"]
        if key in self.caches:
            shutil.copytree(self.caches[key], work / path, symlinks=True)
        lines = ["set -eo pipefail", *self.job["script"]]
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)], cwd=work, env=env, capture_output=True, text=True
        )
        subprocess.run(["bash", "-c", "\n".join(self.job["after_script"])], cwd=work, env=env)
        wanted = "on_success" if done.returncode == 0 else "on_failure"
        if cache.get("when", "on_success") in ("always", wanted):
            self.caches[key] = work / path
        assert (work / "store-1").is_dir(), "the artifact"
        return done.returncode == 0, done.stdout


@pytest.mark.nightly("four starts of the command more")
@pytest.mark.parametrize(("when", "status"), [("always", "Known (1)"), ("on_success", "New (1)")])
def test_gitlabs_second_red_night_is_known(tmp_path: Path, when: str, status: str) -> None:
    job = yaml.safe_load((EXAMPLES / "gitlab-nightly.yml").read_text())["night"]
    assert job["cache"]["when"] == "always"
    job["cache"]["when"] = when
    nights = Nights(tmp_path, matrix='name = "nightly"\nnight.deflake = 0\n[[cells]]\n')
    nights.runner.env["STUB_RULES"] = json.dumps([["*", "lost"]])
    runner = GitLab(nights, job, tmp_path)
    assert runner.run(1)[0] is False
    succeeded, log = runner.run(2)
    assert not succeeded and status in log, log
