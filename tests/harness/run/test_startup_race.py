"""The startup race, brought about in the simulation and told; and not, without its bugs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import UsageError
from shalott.harness.report.meta import StoryResult
from shalott.harness.run.request import Request, complaints_about
from shalott.harness.run.session import run_request
from shalott.harness.run.startup_race import (
    STARTUP_RACE,
    STEPS,
    STORIES,
    find_story,
    story_as_text,
    tell,
)
from shalott.harness.run.store import REPORT, Store
from shalott.harness.run.story import Material

SMALL = {"queues": "6"}


def told_of(store: Path, *, bug: tuple[str, ...] = ()) -> tuple[int, Path, StoryResult]:
    request = Request(
        cluster="sim", scenario="startup-race", seed=1, time_limit="10", given=SMALL, bug=bug
    )
    code = run_request(request, test_count=1, store_root=store)
    path = Store(store).find(None).path
    return code, path, msgspec.json.decode((path / "story.json").read_bytes(), type=StoryResult)


@pytest.mark.sim
def test_it_happens_with_its_bugs_and_is_told_step_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path, told = told_of(tmp_path)
    assert code == 0 and told.happened
    assert [step.name for step in told.steps] == list(STEPS)
    times = [step.at_s for step in told.steps]
    assert None not in times
    assert sorted(times[2:]) == times[2:], "T3 to the end in order"  # type: ignore[type-var]
    quoted = {step.name: step.line for step in told.steps}
    assert quoted["T4"].endswith("line 45 in context child_terminated")
    assert quoted["T6"].startswith(f"Mirrored queue '{told.group}' in vhost '/': Promoting slave")
    assert quoted["T7"] == f"Restarting crashed queue '{told.group}' in vhost '/'."
    assert "Stopping all nodes on master shutdown" in quoted["T10"]
    printed, stored = capsys.readouterr().out, (path / "story.txt").read_text()
    assert story_as_text(told) in printed and story_as_text(told) in stored
    assert "The startup race of mirrored queues" in (path / REPORT).read_text()
    assert "healed cluster got stuck" in printed, "the checker 'liveness' is red"


@pytest.mark.sim
def test_it_does_not_happen_to_the_broker_as_rabbitmq_mended_it(tmp_path: Path) -> None:
    code, _, told = told_of(tmp_path, bug=("KB-RMQ-24",))  # any but its own
    assert code == 1 and not told.happened
    assert all(step.at_s is None for step in told.steps if step.name in ("T4", "T7", "T10"))


@pytest.mark.unit
def test_what_the_command_line_says_counts() -> None:
    asked = Request(scenario="startup-race", rate=7.0, bug=("KB-RMQ-01",), given={"queues": "2"})
    request = STARTUP_RACE.request(asked)
    assert (request.rate, request.bug) == (7.0, ("KB-RMQ-01",))
    assert request.nodes == "2" and request.nemesis == "restart-all"
    assert request.given == {**STARTUP_RACE.given, "queues": "2"}


@pytest.mark.unit
def test_an_unknown_story_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="unknown scenario startup: choose one of startup-race"):
        complaints_about(Request(scenario="startup")).tell()
    assert find_story("startup-race") is STARTUP_RACE and STARTUP_RACE in STORIES


@pytest.mark.unit
def test_of_a_run_in_which_nothing_was_seen_nothing_is_told() -> None:
    told = tell(Material(events=(), lines=(), seen={}, writes=(), end_s=0))
    assert not told.happened and all(step.at_s is None for step in told.steps)
    assert "It did not happen." in story_as_text(told)
