"""What a compose file takes from others: projects that it includes, services that its own extend.

After the Compose specification: an included file is a project beside this one, whose entries become
this one's; a service that extends another has what that has, and over it its own. Paths stay
relative to the file that says them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from shalott.cluster.compose.document import (
    Document,
    Environment,
    environment_beside,
    read_document,
    read_environment,
)
from shalott.core.errors import UsageError
from shalott.core.json_value import Json

PARTS = ("services", "networks", "volumes", "secrets", "configs")
PASSED = {"name", "version", "include", *PARTS}  # what an included file may have
REPLACED = ("command", "entrypoint", "test")  # words of one shell command
# Of a service: a mapping, or a list of texts that mean one, parted by these.
PAIRS = {
    **dict.fromkeys(("environment", "labels", "annotations", "sysctls", "args"), "="),
    "extra_hosts": "[=:]",
}
NAMES = ("networks", "depends_on")  # a mapping, or a list of its keys
REPEATED = ("dns", "dns_search", "env_file", "tmpfs")  # lists in which a text may stand twice


def read_joined(path: Path, environment: Environment) -> tuple[Document, Environment]:
    """The file with all that it takes from others, and the environment of its project. Raises
    UsageError."""
    known = environment_beside(path, environment)
    return _joined(path, path.parent, known, ()), known


def _joined(path: Path, directory: Path, known: Environment, within: tuple[Path, ...]) -> Document:
    """``within``: the files that include it."""
    if path.resolve() in within:
        raise UsageError(f"--compose {path}: it includes itself")
    document = read_document(path, known)
    if "services" in document:
        document["services"] = _extended(document["services"], path, known)
    told = document.pop("include", None) or []
    for each in told if isinstance(told, list) else [told]:
        entry = {"path": each} if isinstance(each, str) else each
        if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
            raise UsageError(f"--compose {path}: include takes the path of one file each")
        unknown = sorted({*entry} - {"path", "project_directory", "env_file"})
        if unknown:
            raise UsageError(f"--compose {path}: include.{unknown[0]} is not honoured")
        _take_in(document, _included(entry, directory, known, (*within, path.resolve())), path)
    return document


def _included(
    entry: Mapping[str, Json], directory: Path, known: Environment, within: tuple[Path, ...]
) -> Document:
    path = directory / str(entry["path"])
    own = entry.get("project_directory")
    beside = directory / str(own) if own else path.parent
    files = entry.get("env_file") or []
    behind: dict[str, str] = {}
    for each in files if isinstance(files, list) else [files]:
        behind |= read_environment(directory / str(each), known)
    if files:
        inner: Environment = {**behind, **known}
    else:
        inner = environment_beside(beside / path.name, known)
    document = _joined(path, beside, inner, within)
    unknown = sorted(key for key in document if key not in PASSED and not key.startswith("x-"))
    if unknown:
        raise UsageError(f"--compose {path}: {unknown[0]} is not honoured: take it out")
    return _rebased(document, beside)


def _take_in(document: Document, other: Document, path: Path) -> None:
    for part in PARTS:
        own, theirs = document.get(part) or {}, other.get(part) or {}
        if not isinstance(own, Mapping) or not isinstance(theirs, Mapping):
            raise UsageError(f"--compose {path}: {part} is no mapping, here or in what it includes")
        twice = [name for name in theirs if name in own and own[name] != theirs[name]]
        if twice:
            raise UsageError(
                f"--compose {path}: {part}.{twice[0]} is in what it includes, too, and is another"
            )
        if own or theirs:
            document[part] = {**own, **theirs}


# -- extends


def _extended(services: Json, path: Path, known: Environment) -> Json:
    """Each service with what it extends."""
    if not isinstance(services, Mapping):
        return services  # refused later
    return {name: _service(str(name), services, path, known, ()) for name in services}


def _service(
    name: str,
    services: Mapping[str, Json],
    path: Path,
    known: Environment,
    within: tuple[tuple[Path, str], ...],
) -> Json:
    told, where = services[name], f"--compose {path}: services.{name}.extends"
    if not isinstance(told, Mapping) or told.get("extends") is None:
        return told
    if (path, name) in within:
        raise UsageError(f"{where}: it extends itself")
    extends = told["extends"]
    entry = {"service": extends} if isinstance(extends, str) else extends
    if not isinstance(entry, Mapping) or not isinstance(entry.get("service"), str):
        raise UsageError(f"{where}: say which service")
    if unknown := sorted({*entry} - {"service", "file"}):
        raise UsageError(f"{where}.{unknown[0]} is not honoured")
    other, at, there = str(entry["service"]), path, services
    if entry.get("file"):
        at = (path.parent / str(entry["file"])).resolve()
        found = read_document(at, known).get("services")
        there = found if isinstance(found, Mapping) else {}
    if other not in there:
        raise UsageError(f"{where}: there is no service {other} in {at.name}")
    base = _service(other, there, at, known, (*within, (path, name)))
    if not isinstance(base, Mapping):
        return told  # refused later, where the other one is
    if at != path:
        base = _of_service(base, at.parent)
    return _merged(base, {key: value for key, value in told.items() if key != "extends"})


def _merged(base: Mapping[str, Json], own: Mapping[str, Json]) -> Document:
    """A key without a value says nothing, but in what the container's environment is."""
    found = dict(base)
    for key, value in own.items():
        before = found.get(key)
        if before is None or (value is not None and key in REPLACED):
            found[key] = value
        elif value is not None:
            found[key] = _both(key, before, value)
    return found


def _both(key: str, base: Json, own: Json) -> Json:
    if key in PAIRS:
        return {**_pairs(base, PAIRS[key]), **_pairs(own, PAIRS[key])}
    if key in NAMES:
        base, own = _by_name(base), _by_name(own)
    if key == "build":
        base, own = ({"context": each} if isinstance(each, str) else each for each in (base, own))
    if isinstance(base, Mapping) and isinstance(own, Mapping):
        return _merged(base, own)
    if key in REPEATED:
        base, own = ([each] if isinstance(each, str) else each for each in (base, own))
    if not (isinstance(base, list) and isinstance(own, list)):
        return own
    if key in REPEATED:
        return [*base, *own]
    if key in ("volumes", "secrets", "configs"):  # one for each target
        taken = [_target(each) for each in own]
        return [*(each for each in base if _target(each) not in taken), *own]
    return [*base, *(each for each in own if each not in base)]


def _pairs(told: Json, parted: str) -> Document:
    if isinstance(told, Mapping):
        return dict(told)
    found: Document = {}
    for each in told if isinstance(told, list) else []:
        name, *rest = re.split(parted, str(each), maxsplit=1)
        found[name] = rest[0] if rest else None
    return found


def _by_name(told: Json) -> Json:
    return {str(each): {} for each in told} if isinstance(told, list) else told


def _target(told: Json) -> str:
    """Where a volume, a secret or a config is in the container."""
    if isinstance(told, Mapping):
        return str(told.get("target") or told.get("source"))
    parts = str(told).split(":")
    return parts[1 if len(parts) > 1 else 0].rstrip("/")


# -- paths


def _rebased(document: Document, directory: Path) -> Document:
    """With paths that mean the same from anywhere."""
    found = dict(document)
    for part in PARTS:
        entries = found.get(part)
        if isinstance(entries, Mapping):
            change = _of_service if part == "services" else _of_content
            found[part] = {
                name: change(each, directory) if isinstance(each, Mapping) else each
                for name, each in entries.items()
            }
    return found


def _of_content(told: Mapping[str, Json], directory: Path) -> Document:
    return {**told, **({"file": _path(told["file"], directory)} if "file" in told else {})}


def _of_service(told: Mapping[str, Json], directory: Path) -> Document:
    found = dict(told)
    build, files, volumes = told.get("build"), told.get("env_file"), told.get("volumes")
    if isinstance(build, str):
        found["build"] = _path(build, directory)
    elif isinstance(build, Mapping):
        found["build"] = {**build, "context": _path(build.get("context", "."), directory)}
    if files is not None:
        listed = files if isinstance(files, list) else [files]
        found["env_file"] = [
            {**each, "path": _path(each.get("path"), directory)}
            if isinstance(each, Mapping)
            else _path(each, directory)
            for each in listed
        ]
    if isinstance(volumes, list):
        found["volumes"] = [_volume(each, directory) for each in volumes]
    return found


def _volume(told: Json, directory: Path) -> Json:
    if isinstance(told, Mapping):
        if told.get("type") != "bind":
            return told
        return {**told, "source": _path(told.get("source"), directory)}
    source, colon, rest = str(told).partition(":")
    return f"{_path(source, directory)}:{rest}" if colon and source.startswith(".") else told


def _path(told: Json, directory: Path) -> Json:
    """What is no relative path stays what it is, and is refused where it is read."""
    return str(directory.resolve() / Path(told).expanduser()) if isinstance(told, str) else told
