"""The stories that ``--scenario`` knows, and a story of a run as text."""

from __future__ import annotations

import textwrap

from shalott.harness.report.meta import STORY_NAMES, StoryResult, StoryStep
from shalott.harness.stories.startup_race import STARTUP_RACE
from shalott.harness.stories.story import Story

STORIES: tuple[Story, ...] = (STARTUP_RACE,)
assert tuple(story.name for story in STORIES) == STORY_NAMES
_WIDTH = 118


def find_story(name: str) -> Story:
    """One of STORY_NAMES, which the request was held to."""
    return next(story for story in STORIES if story.name == name)


def story_as_text(told: StoryResult) -> str:
    where = f" to {told.group}" if told.group else ""
    verdict = f"It happened{where}." if told.happened else "It did not happen."
    head = [f"{told.title}", f"({told.source})", "", verdict, told.ending, ""]
    return "\n".join(head + [line for step in told.steps for line in _step(step)]).rstrip()


def _step(step: StoryStep) -> list[str]:
    seen = "not seen" if step.at_s is None else f"{step.at_s:9.3f} s  {step.node}"
    wrapped = textwrap.wrap(f"{step.name:<4} {step.story}", _WIDTH, subsequent_indent=" " * 5)
    rows = [*wrapped, f"     -> {seen}" + (f"  {step.event}" if step.event else "")]
    if step.line:
        rows += [f"        {step.line}"]
    return rows
