"""What the stories are called: apart from them, so that a command line is refused at once."""

from __future__ import annotations

STORY_NAMES = ("startup-race",)
