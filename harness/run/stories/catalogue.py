"""The stories that ``--scenario`` knows."""

from __future__ import annotations

from shalott.harness.run.request import STORY_NAMES
from shalott.harness.run.stories.startup_race import STARTUP_RACE
from shalott.harness.run.stories.story import Story

STORIES: tuple[Story, ...] = (STARTUP_RACE,)
assert tuple(story.name for story in STORIES) == STORY_NAMES, "request.py names them"


def find_story(name: str) -> Story:
    """One of STORY_NAMES, which the request was held to."""
    return next(story for story in STORIES if story.name == name)
