"""Clocks of containers, with libfaketime: a node's C library tells another time than the kernel's.

The kernel has one wall clock for all containers. So a node that shall have a clock of its own is
started with libfaketime preloaded (cluster/faketime.py); the host writes the file that it reads.

A drift is made of steps, TICK_S apart, for libfaketime counts a rate from each process's start. A
program that libfaketime does not reach is refused (``check_image``).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import docker
import docker.errors
import msgspec

from shalott.cluster.capabilities import NOTHING, WORLDS, refusal
from shalott.cluster.docker.containers import CONFIG_DIR, fill_placeholders, put_files
from shalott.cluster.docker.namespaces import can_enter, is_root, run_program
from shalott.cluster.docker.nodes import ContainerNodes, EntersNodes
from shalott.cluster.faketime import (
    FILE,
    LIBRARY,
    READ,
    READ_WITHIN_S,
    TICK_S,
    check_program,
    environment,
    file_text,
    wall_beside_monotonic_ns,
)
from shalott.cluster.nodes import NodeSpec
from shalott.core.errors import HarnessError, UsageError
from shalott.core.json_value import Json

SYMLINKS_MAX = 8
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Setting:
    """So far ahead at ``since_ns`` of the monotonic clock, and gaining."""

    offset_ms: float
    drift_ppm: float
    since_ns: int

    def offset_at(self, now_ns: int) -> float:
        return self.offset_ms + self.drift_ppm * (now_ns - self.since_ns) / 1e12


class ContainerClocks:
    """See ``Clocks``. ``is_wanted``: nodes are started so that each can have a clock of its own.

    Only the wall clock: the monotonic one never drifts here.
    """

    error_ms = 5.0  # a drift is made of steps

    def __init__(self, run: ContainerNodes, links: EntersNodes, *, is_wanted: bool) -> None:
        can_here = is_wanted and is_root() and can_enter(os.getpid())
        self.capabilities = WORLDS["docker"]["clocks"] if can_here else NOTHING
        self._run = run
        self._links = links
        self._is_wanted = is_wanted
        self._settings: dict[str, Setting] = {}
        self._drifting: asyncio.Task[None] | None = None
        self.history: dict[str, list[tuple[int, int]]] = {}  # see ``MovesClocks``

    async def prepare(self, spec: NodeSpec, image: str) -> NodeSpec:
        """As a node is started if it is to have a clock of its own. Raises UsageError if it
        can't."""
        if not self._is_wanted:
            return spec
        command = [fill_placeholders(word) for word in spec.command]
        told = spec.container.config if spec.container is not None else {}
        await self._run.engine.call(lambda api: check_image(api, image, command, spec.name, told))
        return msgspec.structs.replace(
            spec,
            files={**spec.files, FILE: file_text(0)},
            environment={**spec.environment, **environment(CONFIG_DIR)},
        )

    def _check(self) -> None:
        if not (self._is_wanted and self._links.enters):
            raise refusal("docker", "clocks")

    async def set(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._check()
        self._settings[node] = Setting(offset_ms, drift_ppm, time.monotonic_ns())
        await self._tell(node)
        drifts = any(setting.drift_ppm for setting in self._settings.values())
        if drifts and self._drifting is None:
            self._drifting = asyncio.create_task(self._drift())
        elif not drifts:
            await self._stop_drifting()

    async def offset_ms(self, node: str) -> float:
        self._check()
        pid = await self._run.pid_of(node)
        if pid is None:
            raise HarnessError(f"{node} does not run, so its clock can't be seen")
        return await read_offset_ms(pid)

    async def heal(self) -> None:
        await self._stop_drifting()
        now_ns = time.monotonic_ns()
        wrong = [node for node, setting in self._settings.items() if setting.offset_at(now_ns)]
        self._settings.clear()
        for node in wrong:
            await self._write(node, file_text(0))

    async def close(self) -> None:
        await self._stop_drifting()
        self._settings.clear()

    async def _tell(self, node: str) -> None:
        await self._write(node, file_text(self._settings[node].offset_at(time.monotonic_ns())))

    async def _write(self, node: str, text: str) -> None:
        await self._put(node, text)
        ahead_ns, told = round(float(text) * 1e9), self.history.setdefault(node, [])
        if abs(ahead_ns - (told[-1][1] if told else 0)) > self.error_ms * 1e6:
            told.append((time.monotonic_ns(), ahead_ns))

    async def _put(self, node: str, text: str) -> None:
        machine, pid = self._run.machine(node), self._run.pids.get(node)
        try:
            if pid is not None:
                write_in_place(pid, f"{CONFIG_DIR}/{FILE}", text)
                return
        except OSError:
            pass  # it has ended meanwhile
        await self._run.engine.call(lambda api: put_files(api, machine, {FILE: text}))

    async def _drift(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for node, setting in list(self._settings.items()):
                if setting.drift_ppm:
                    with contextlib.suppress(HarnessError):  # a node that is just being killed
                        await self._tell(node)

    async def _stop_drifting(self) -> None:
        task, self._drifting = self._drifting, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def write_in_place(pid: int, path: str, text: str) -> None:
    """Overwrite a file in the mount namespace of a running process. Raises OSError."""
    descriptor = os.open(f"/proc/{pid}/root{path}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


async def read_offset_ms(pid: int) -> float:
    """How far ahead of the host's clock the time is that a container's node sees.

    A program is started in the node's namespaces with its very environment: that of the first child
    of the container's first process, which only waits. Raises HarnessError.
    """
    words = [word for word in _environment_of(_child_of(pid)) if "=" in word]
    program = ("env", "-i", *words, "python3", "-I", "-S", "-c", READ)
    asking = run_program("nsenter", "-t", str(pid), "-m", "-n", "--", *program)
    try:
        async with asyncio.timeout(READ_WITHIN_S):
            done = await asking
    except TimeoutError as error:
        raise HarnessError(f"no clock was read within {READ_WITHIN_S:g} s") from error
    try:
        monotonic_ns, wall_ns = map(int, done.output.split())
    except ValueError as error:
        said = (done.errors.strip() or done.output.strip())[-200:]
        raise HarnessError(f"a node's clock can't be read by its python3: {said}") from error
    return (wall_ns - monotonic_ns - wall_beside_monotonic_ns()) / 1e6


def _child_of(pid: int) -> int:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return pid
    return int(children[0]) if children else pid


def _environment_of(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        raise HarnessError(f"a node's environment can't be read: {error.strerror}") from error


# -- whose kernel's clocks they are


async def shares_kernel(run: ContainerNodes, node: str) -> bool:
    """Whether a running node has the harness's kernel, and no time namespace of its own. Raises
    HarnessError: it does not run."""
    pid = await run.pid_of(node)
    if pid is None:
        raise HarnessError(f"{node} does not run, so its clock can't be seen")
    name = run.machine(node).name
    identity = str(await run.engine.call(lambda api: api.inspect_container(name)["Id"]))
    if identity in _told(f"/proc/{pid}/cgroup"):
        return _told(f"/proc/{pid}/timens_offsets") == _told("/proc/self/timens_offsets")
    # This process does not see those of the engine's machine.
    done = await run.execute(node, ["cat", BOOT_ID])
    return done.exit_code == 0 and done.output.strip() == _told(BOOT_ID).strip()


def _told(path: str) -> str:
    """ "" if there is no such file, as where a kernel has no time namespaces."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def wall_ns_of(text: str) -> int:
    """An engine's time, to the nanosecond: 2026-01-01T00:00:00.123456789Z."""
    found = re.fullmatch(r"(.+?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", text)
    if found is None:
        raise HarnessError(f"the engine tells no time: {text}")
    whole, fraction, zone = found.groups()
    seconds = datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp()
    return round(seconds) * 1_000_000_000 + int((fraction or "0").ljust(9, "0")[:9])


# -- which programs can have a clock of their own


def check_image(
    api: docker.APIClient,
    image: str,
    command: Sequence[str],
    node: str,
    told: Mapping[str, Json] = MappingProxyType({}),
) -> None:
    """Raise UsageError unless what ``command`` runs in ``image`` can have its own clock; ``told``
    are words of the engine's that go over the image's. Blocks."""
    container = api.create_container(image, command=["true"], network_disabled=True)["Id"]
    try:
        facts = api.inspect_image(image)["Config"]
        search = _search_path(facts.get("Env") or ())
        if told:
            facts = {**facts, **({"Cmd": ()} if "Entrypoint" in told else {}), **told}
            command = command or facts.get("Cmd") or ()
        words = (*(facts.get("Entrypoint") or ()), *command)
        named = [word for number, word in enumerate(words) if number == 0 or word[:1] == "/"]
        for word in dict.fromkeys((*named, *command[:1])):
            content = _program_file(api, container, word, search)
            if content is not None and (reason := check_program(content)):
                raise UsageError(
                    f"{node} can't have a clock of its own: {word} {reason}; choose another"
                    " --nemesis"
                )
        if not _has_library(api, container):
            raise UsageError(
                f"{node} can't have a clock of its own: its image lacks libfaketime (Debian's"
                " package libfaketime); install it there, or choose another --nemesis"
            )
    finally:
        api.remove_container(container, force=True)


def _search_path(environment_words: Sequence[str]) -> list[str]:
    told = dict(word.split("=", 1) for word in environment_words if "=" in word)
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return told.get("PATH", usual).split(":")


def _program_file(
    api: docker.APIClient, container: str, word: str, search: Sequence[str]
) -> bytes | None:
    """The content of what the word runs; None if it is no program of the image."""
    places = [word] if "/" in word else [f"{directory}/{word}" for directory in search]
    for place in places:
        content = _file(api, container, place)
        if content is not None:
            return content
    return None


def _file(api: docker.APIClient, container: str, path: str) -> bytes | None:
    for _ in range(SYMLINKS_MAX):
        try:
            chunks, facts = api.get_archive(container, path)
        except docker.errors.NotFound:
            return None
        target = facts.get("linkTarget") or ""
        if target and target != path:
            path = str(PurePosixPath(path).parent / target)
            continue
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None and member.isfile() else None
            return file.read() if file is not None else None
    return None


def _has_library(api: docker.APIClient, container: str) -> bool:
    machines: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}
    architecture = str(api.version()["Arch"])
    folder = f"lib/{machines.get(architecture, architecture)}-linux-gnu"
    return _file(api, container, LIBRARY.replace("$LIB", folder)) is not None
