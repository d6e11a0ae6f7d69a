"""A told story as text, and as the files story.txt and story.json of its run."""

from __future__ import annotations

import textwrap

import msgspec

from shalott.harness.report.meta import ToldStep, ToldStory
from shalott.harness.run.store import RunDirectory

STORY_TEXT = "story.txt"
STORY_JSON = "story.json"
_WIDTH = 118


def save_story(told: ToldStory, directory: RunDirectory) -> None:
    """Raises StoreError."""
    directory.save_text(STORY_TEXT, told_as_text(told) + "\n")
    directory.save_bytes(STORY_JSON, msgspec.json.format(msgspec.json.encode(told), indent=2))


def told_as_text(told: ToldStory) -> str:
    where = f" to {told.group}" if told.group else ""
    verdict = f"It happened{where}." if told.happened else "It did not happen."
    head = [f"{told.title}", f"({told.source})", "", verdict, told.ending, ""]
    return "\n".join(head + [line for step in told.steps for line in _step(step)]).rstrip()


def _step(step: ToldStep) -> list[str]:
    seen = "not seen" if step.at_s is None else f"{step.at_s:9.3f} s  {step.node}"
    wrapped = textwrap.wrap(f"{step.name:<4} {step.story}", _WIDTH, subsequent_indent=" " * 5)
    rows = [*wrapped, f"     -> {seen}" + (f"  {step.event}" if step.event else "")]
    if step.line:
        rows += [f"        {step.line}"]
    return rows
