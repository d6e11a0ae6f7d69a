"""What report.html, results.json and junit.xml say of a run besides its results."""

from __future__ import annotations

import msgspec

NOT_LOOKED_AT = "unknown: not looked up"
STORY_NAMES = ("startup-race",)


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """What was tested, and with what. What can't be known says "unknown: " and why; what there is
    none of says "none: " and why.

    ``packages``: of what runs on the nodes, name -> version. ``packages_from``: who said it.
    ``pinned``: the versions that the image's recipe asks for; empty if it pins none. ``artifacts``:
    SHA-256 of each file that was fetched to make the image, by name.
    """

    commit: str = NOT_LOOKED_AT  # of this project
    tree: str = NOT_LOOKED_AT  # clean, or changed: the commit alone is not what ran
    shalott: str = NOT_LOOKED_AT
    python: str = NOT_LOOKED_AT
    kernel: str = NOT_LOOKED_AT
    engine: str = NOT_LOOKED_AT  # the Docker engine's version
    image: str = NOT_LOOKED_AT  # of the nodes: tag
    image_id: str = NOT_LOOKED_AT
    image_digest: str = NOT_LOOKED_AT  # a registry's
    base_image: str = NOT_LOOKED_AT
    base_image_id: str = NOT_LOOKED_AT
    base_image_digest: str = NOT_LOOKED_AT
    packages: dict[str, str] = {}
    packages_from: str = NOT_LOOKED_AT
    pinned: dict[str, str] = {}
    artifacts: dict[str, str] = {}


def tested_facts(tested: Tested) -> list[tuple[str, str]]:
    """(name, value) of each, for people."""
    facts = msgspec.structs.asdict(tested)
    for name in ("packages", "pinned"):
        own = facts[name]
        facts[name] = ", ".join(f"{each} {own[each]}" for each in sorted(own)) or "none"
    count = len(facts["artifacts"])  # by their hashes in results.json
    facts["artifacts"] = f"{count} files, each with its hash in results.json" if count else "none"
    return [(name.replace("_", " "), value) for name, value in facts.items()]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes took together: CPU seconds of the whole run, and memory while all of them ran
    (the median), without pages of files that were not read lately."""

    nodes: int
    cpu_s: float
    memory_mib: float


class StoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a story, and what was seen of it. ``at_s``: from the run's start; None if it was
    not seen. ``event``: what a node wrote of it; ``line``: the one in its log.
    """

    name: str
    story: str
    at_s: float | None = None
    node: str = ""
    event: str = ""
    line: str = ""


class StoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """A story, step by step beside what happened. ``group``: the queue to which it did."""

    name: str
    title: str
    source: str
    happened: bool
    group: str
    ending: str
    steps: tuple[StoryStep, ...]


class ReportMeta(msgspec.Struct, frozen=True, kw_only=True):
    command: str  # repeats the run
    started_wall_ns: int  # by the true clock, also of a simulation
    virtual_started_ns: int | None = None  # what a simulation's own clock showed then
    elapsed_ns: int = 0  # the whole run, boot to checks, in real time
    iteration: int = 1  # which of the runs that one command makes, from 1
    versions: dict[str, str] = {}  # shalott, python, the system, docker, ...
    tested: Tested = Tested()
    notes: tuple[str, ...] = ()  # which backend was chosen and why, what was cut short, ...
    failures: tuple[str, ...] = ()  # the harness's own
    directory: str = ""  # the run's directory, as the user would type it
    files: tuple[str, ...] = ()  # what lies in it, by path below it
    story: StoryResult | None = None
    usage: Usage | None = None  # of the nodes; None: not known
