"""Random actions on files: drawn, done by a process of its own that is killed somewhere, and told
to the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from shalott.core.rng import Stream
from tests.world.disk import disk_process
from tests.world.disk.disk_process import Action
from tests.world.disk.legality import PATHS, Model, ModelFile

VERBS = (
    *("write", "write", "write", "append", "write_synced", "truncate", "allocate"),
    *("map", "map", "map_synced", "sync", "sync_data", "rename", "link", "remove", "sync_dir"),
)
FAR = 9000  # beyond the second page
PAGE_BYTES = 4096


def draw(seed: int) -> list[Action]:
    """Actions that make sense one after another."""
    draws, model, actions = Stream(seed, "stress"), Model(), list[Action]()
    while len(actions) < 10 + seed % 30:
        action = (
            draws.choice(VERBS),
            draws.choice(PATHS),
            draws.choice(PATHS),
            draws.below(FAR),
            1 + draws.below(FAR // 3),
        )
        if makes_sense(model, action):
            tell(model, len(actions), action)
            actions.append(action)
    return actions


def makes_sense(model: Model, action: Action) -> bool:
    verb, path, other, _, _ = action
    is_there = model.at(path) is not None
    if verb == "rename":
        return is_there and path != other and model.at(path) is not model.at(other)
    if verb == "link":
        return is_there and model.at(other) is None
    return is_there or verb != "remove"


def tell(model: Model, number: int, action: Action, *, journal: bool = False) -> None:
    """The model after the action. ``journal``: any sync makes all names durable."""
    verb, path, other, offset, length = action
    known = model.at(path)
    synced = verb == "sync_dir"
    if synced:
        model.sync_directory(path.rpartition("/")[0])
    elif verb in ("rename", "link"):
        if verb == "rename":
            model.bind(path, None)
        model.bind(other, known)
    elif verb == "remove":
        model.bind(path, None)
    else:
        synced = change(_known(model, path), verb, offset, bytes([number % 255 + 1]) * length)
    if journal and synced:
        model.sync_directory("d")
        model.sync_directory("")


def change(file: ModelFile, verb: str, offset: int, data: bytes) -> bool:
    """Whether the file is synced by it."""
    size = len(file.content)
    if verb == "append":
        file.write(size, data)
    elif verb.startswith("map"):
        if offset < size:
            file.write(offset, data[: size - offset])
    elif verb.startswith("write"):
        file.write(offset, data)
    elif verb == "truncate":
        file.truncate(offset)
    elif verb == "allocate" and offset + 1 > size:
        file.truncate(offset + 1)
    if "sync" not in verb or (verb == "map_synced" and offset >= size):
        return False
    file.sync()
    return True


def act_and_die(root: Path, actions: Sequence[Action], die_after: int) -> int:
    """Have a process do the actions and kill it after so many; returns how many it has done."""
    program = subprocess.Popen(
        [sys.executable, "-S", "-E", str(Path(disk_process.__file__)), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None and program.stdout is not None
    with program:
        program.stdin.write(json.dumps(actions).encode())
        program.stdin.close()
        done = len(program.stdout.read(die_after))
        program.kill()
        return done + len(program.stdout.read())


def models_of(
    actions: Sequence[Action], done: int, found: Mapping[str, bytes | None], *, journal: bool
) -> list[Model]:
    """What may be there when ``done`` actions were done and the next one had perhaps begun.
    ``found``: what is there, which alone tells how far a process came that wrote to a map."""
    models = [_told(actions[:count], journal=journal) for count in (done, done + 1)]
    if done < len(actions):
        for begun in _beginnings(done, actions[done], models[0].at(actions[done][1]), found):
            model = _told(actions[:done], journal=journal)
            begun(model)
            models.append(model)
    return models


def _told(actions: Sequence[Action], *, journal: bool) -> Model:
    model = Model()
    for number, action in enumerate(actions):
        tell(model, number, action, journal=journal)
    return model


def _beginnings(
    number: int, action: Action, known: ModelFile | None, found: Mapping[str, bytes | None]
) -> Iterator[Callable[[Model], None]]:
    """What an action may have done that was killed while it ran: it made its file; it wrote and
    did not sync; it wrote some of the pages, for Linux looks for a fatal signal before each page
    of a write, on ext4 as well; or it copied any part to a map, for a process dies at any of its
    own instructions and copies in whatever order its C library likes."""
    verb, path, _, offset, length = action
    if verb in ("sync_dir", "rename", "link", "remove"):
        return
    if known is None:
        yield lambda model: model.bind(path, ModelFile())
    new, old = number % 255 + 1, b"" if known is None else known.content
    if verb.startswith("map"):
        there = found[path]
        if there is not None and _is_between(old, there, new, offset, offset + length):
            yield lambda model: _known(model, path).begin_map(there)
    elif verb.startswith(("write", "append")):
        start = len(old) if verb == "append" else offset
        borders = range(start - start % PAGE_BYTES + PAGE_BYTES, start + length, PAGE_BYTES)
        for cut in (*borders, start + length):
            yield partial(_write, path, start, bytes([new]) * (cut - start))


def _is_between(old: bytes, found: bytes, new: int, start: int, end: int) -> bool:
    """Whether some of the bytes from start to end have the new value, and nothing else is new."""
    changed = (at for at, byte in enumerate(found) if byte != old[at])
    return len(old) == len(found) and all(start <= at < end and found[at] == new for at in changed)


def _known(model: Model, path: str) -> ModelFile:
    known = model.at(path)
    if known is None:
        known = ModelFile()
        model.bind(path, known)
    return known


def _write(path: str, offset: int, data: bytes, model: Model) -> None:
    _known(model, path).write(offset, data)
