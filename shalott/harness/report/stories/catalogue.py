"""The stories that ``--scenario`` knows."""

from __future__ import annotations

from shalott.harness.report.stories.names import STORY_NAMES
from shalott.harness.report.stories.startup_race import STARTUP_RACE
from shalott.harness.report.stories.story import Story

STORIES: tuple[Story, ...] = (STARTUP_RACE,)
assert tuple(story.name for story in STORIES) == STORY_NAMES


def find_story(name: str) -> Story:
    """One of STORY_NAMES, which the request was held to."""
    return next(story for story in STORIES if story.name == name)
