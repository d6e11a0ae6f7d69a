"""What a container gets that others describe (``ContainerSpec``), in calls of the engine.

What the harness needs of it stays: its name, network, labels and log, and the right to change its
network. All calls block.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import docker

from shalott.cluster.docker.names import volume_name
from shalott.cluster.nodes import MIB, ContainerSpec
from shalott.core.errors import BootFailed
from shalott.core.json_value import Json

COPIES_MAX = 256 * MIB


def lay_over(config: dict[str, Json], told: ContainerSpec, token: str) -> None:
    """Put the container's own words over those that every node gets."""
    own = {**told.config}
    environment = own.pop("Env", None)
    config.update(own)
    if isinstance(environment, list):
        config["Env"] = [*environment, *_list(config.get("Env"))]
    if "Cmd" not in own:
        config["Cmd"] = config.get("Cmd") or None
    host = config["HostConfig"]
    assert isinstance(host, dict), "the engine's words"
    for word, value in told.host.items():
        if isinstance(value, list):
            host[word] = [*_list(host.get(word)), *value]
        elif isinstance(value, Mapping) and word != "RestartPolicy":
            host[word] = {**(host.get(word) or {}), **value}
        else:
            host[word] = value
    shared = [
        f"{volume_name(token, name.partition(':')[0])}:{place}:{name.partition(':')[2] or 'rw'}"
        for place, name in told.shared.items()
    ]
    read = [f"{source}:{place}:ro" for place, source in told.binds.items()]
    host["Binds"] = [*_list(host.get("Binds")), *shared, *read]


def _list(value: Json) -> list[Json]:
    return [*value] if isinstance(value, list) else []


def put_contents(api: docker.APIClient, name: str, told: ContainerSpec) -> None:
    """Give a container that was just made its files. Raises BootFailed: they are too large."""
    if not told.copies and not told.contents:
        return
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for place, source in told.copies.items():
            size = sum(each.stat().st_size for each in _files(Path(source)))
            if size > COPIES_MAX:
                raise BootFailed(
                    f"{source} holds {size // MIB} MiB: a container gets a copy of what it may"
                    " write, 256 MiB at most; mount it as :ro, or make it a volume"
                )
            archive.add(source, place.lstrip("/"))
        for place, text in told.contents.items():
            content = text.encode()
            entry = tarfile.TarInfo(place.lstrip("/"))
            entry.size, entry.mode = len(content), 0o444
            archive.addfile(entry, io.BytesIO(content))
    api.put_archive(name, "/", buffer.getvalue())


def _files(source: Path) -> list[Path]:
    return [each for each in (source, *source.rglob("*")) if each.is_file()]


def build_context(api: docker.APIClient, words: Mapping[str, object]) -> str:
    """Build with the engine's words; what it said if there is no image then, else ""."""
    said = ""
    for line in api.build(**words, rm=True, forcerm=True, decode=True):
        said = (said + str(line.get("stream") or line.get("error") or ""))[-4000:]
        if "error" in line:
            return said
    return ""
