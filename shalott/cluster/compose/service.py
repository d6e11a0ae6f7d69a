"""A service of a compose file as the containers that it is made of, in the engine's words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shalott.cluster.compose.document import Environment, read_environment
from shalott.cluster.compose.service_file import (
    BuildFile,
    ContentFile,
    DependencyFile,
    GrantFile,
    HealthFile,
    MountFile,
    NetworkUseFile,
    Number,
    PortFile,
    ServiceFile,
    Switch,
    Texts,
    UlimitFile,
    Words,
)
from shalott.cluster.nodes import Build, ContainerSpec, Health
from shalott.core.errors import UsageError
from shalott.core.json_value import Json

LOGS = "its output is kept with the run"
NO_CHECK = Health(words=())  # of a container that is not to be asked
PATIENCE_S = 120.0
MODES = ("rw", "ro", "z", "Z", "nocopy", "cached", "delegated", "consistent")
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a service refers to: the directory of the file, the project's environment, and the
    file's own volumes, secrets and configs. ``shared``: volumes that several containers use;
    ``aliases``: what links call services."""

    directory: Path
    environment: Environment
    volumes: Sequence[str]
    shared: Sequence[str]
    secrets: Mapping[str, ContentFile]
    configs: Mapping[str, ContentFile]
    aliases: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Mounts:
    own: tuple[str, ...]
    shared: dict[str, str]
    binds: dict[str, str]
    copies: dict[str, str]
    tmpfs: dict[str, Json]


def container_of(name: str, file: ServiceFile, around: Surroundings) -> ContainerSpec:
    """How its containers are made. Raises UsageError."""
    where = f"service {name}"
    mounts = _mounts(where, file, around)
    data = file.own.data
    if data and data not in mounts.own:
        raise UsageError(f"{where}: x-shalott.data: {data} is no volume of its own")
    first = data or next(iter(mounts.own), "")
    aliases = [a for use in networks_of(file).values() if use for a in use.aliases]
    aliases += around.aliases.get(name, [])
    fixed = [use.ipv4_address for use in networks_of(file).values() if use and use.ipv4_address]
    return ContainerSpec(
        config=_config(where, file, around),
        host={**_host_config(where, file), **({"Tmpfs": mounts.tmpfs} if mounts.tmpfs else {})},
        data=first,
        volumes=tuple(each for each in mounts.own if each != first),
        shared=mounts.shared,
        binds=mounts.binds,
        copies=mounts.copies,
        contents=dict(_contents(where, file, around, mounts.copies)),
        address=next(iter(fixed), ""),
        names=tuple(
            dict.fromkeys((name, *aliases, *filter(None, (file.container_name, file.hostname))))
        ),
        build=build_of(file, around.directory),
        health=health_of(where, file.healthcheck),
        stop_ms=round(1000 * seconds(where, file.stop_grace_period or "0s")),
    )


def build_of(file: ServiceFile, directory: Path) -> Build | None:
    build = BuildFile(context=file.build) if isinstance(file.build, str) else file.build
    if build is None:
        return None
    context = directory / Path(build.context).expanduser()
    if not context.is_dir():
        raise UsageError(f"build: {build.context}: there is no such directory beside the file")
    if build.dockerfile_inline:
        raise UsageError("build.dockerfile_inline is not honoured: put it into a Dockerfile")
    if not (context / build.dockerfile).is_file():
        raise UsageError(f"build: there is no {build.dockerfile} in {build.context}")
    return Build(
        context=str(context.resolve()),
        dockerfile=build.dockerfile,
        arguments=words(build.args, {}),
        target=build.target,
    )


def networks_of(file: ServiceFile) -> Mapping[str, NetworkUseFile | None]:
    used = file.networks
    named = used if isinstance(used, dict) else dict.fromkeys(used)
    return named or {"default": None}


def dependencies_of(file: ServiceFile) -> dict[str, DependencyFile]:
    """By service; those that are linked to count too."""
    told = file.depends_on
    links = {link.partition(":")[0]: DependencyFile() for link in file.links}
    return links | (told if isinstance(told, dict) else {name: DependencyFile() for name in told})


def ports_of(where: str, file: ServiceFile) -> list[int]:
    """Those in the container that are published or exposed, by TCP, in the file's order."""
    found = []
    for each in (*file.ports, *file.expose):
        if isinstance(each, PortFile):
            text, protocol = str(each.target), each.protocol
        else:
            text, _, protocol = str(each).partition("/")
            text = text.rpartition(":")[2]
        if protocol in ("", "tcp"):
            found.append(whole(where, "ports", text.partition("-")[0]))
    return found


def health_of(where: str, told: HealthFile | None) -> Health | None:
    """None: as the image says."""
    if told is None or (told.test is None and not flag(where, told.disable)):
        return None
    test = told.test if told.test is not None else []
    if flag(where, told.disable) or test[:1] == ["NONE"]:
        return NO_CHECK
    command = health_words([*test] if isinstance(test, list) else ["CMD-SHELL", test])
    if not command:
        raise UsageError(f"{where}: healthcheck.test begins with CMD, CMD-SHELL or NONE")
    timeout_s, tries = seconds(where, told.timeout), whole(where, "retries", told.retries)
    allowed_s = seconds(where, told.start_period) + tries * (
        seconds(where, told.interval) + timeout_s
    )
    return Health(words=command, timeout_s=timeout_s or 30.0, patience_s=max(PATIENCE_S, allowed_s))


def health_words(test: Sequence[str]) -> tuple[str, ...]:
    """The command of a check as the engine writes it; empty if it is none."""
    kind, *rest = test or [""]
    if kind == "CMD-SHELL" and rest:
        return ("/bin/sh", "-c", " ".join(rest))
    return tuple(rest) if kind == "CMD" else ()


# -- the engine's words


def _config(where: str, file: ServiceFile, around: Surroundings) -> dict[str, Json]:
    """Of the container itself. Its own health check is never run by the engine: who waits asks."""
    config: dict[str, Json] = {
        "Env": [f"{key}={value}" for key, value in _environment(file, around).items()],
        "Healthcheck": {"Test": ["NONE"]},
    }
    if file.entrypoint is not None:
        config["Entrypoint"] = split(file.entrypoint) or [""]
    if file.command is not None:
        config["Cmd"] = split(file.command)
    texts = {
        "User": str(file.user),
        "WorkingDir": file.working_dir,
        "StopSignal": file.stop_signal,
        "Domainname": file.domainname,
        "Hostname": file.hostname,
    }
    config |= {key: text for key, text in texts.items() if text}
    switches = {"Tty": file.tty, "OpenStdin": file.stdin_open}
    return config | {key: True for key, told in switches.items() if flag(where, told)}


def _environment(file: ServiceFile, around: Surroundings) -> dict[str, str]:
    """Of its environment files, and over these of its own."""
    found: dict[str, str] = {}
    told = [file.env_file] if isinstance(file.env_file, str) else file.env_file
    for each in told:
        entry = {"path": each} if isinstance(each, str) else each
        unknown = set(entry) - {"path", "required"}
        if unknown:
            raise UsageError(f"env_file.{sorted(unknown)[0]} is not honoured")
        path = around.directory / str(entry["path"])
        if path.is_file() or entry.get("required", True):
            found |= read_environment(path, around.environment)
    return found | words(file.environment, around.environment)


def _host_config(where: str, file: ServiceFile) -> dict[str, Json]:
    limits, kept = file.deploy.resources.limits, file.deploy.resources.reservations
    sizes = {
        "Memory": file.mem_limit or limits.memory,
        "MemoryReservation": file.mem_reservation or kept.memory,
        "MemorySwap": file.memswap_limit,
        "ShmSize": file.shm_size,
    }
    numbers = {
        "CpuShares": file.cpu_shares,
        "PidsLimit": file.pids_limit or limits.pids,
        "OomScoreAdj": file.oom_score_adj,
    }
    switches = {"Init": file.init, "Privileged": file.privileged, "ReadonlyRootfs": file.read_only}
    lists: dict[str, list[str]] = {
        "CapAdd": file.cap_add,
        "CapDrop": file.cap_drop,
        "SecurityOpt": file.security_opt,
        "GroupAdd": [str(each) for each in file.group_add],
        "Dns": _list(file.dns),
        "DnsSearch": _list(file.dns_search),
        "DnsOptions": file.dns_opt,
        "ExtraHosts": [re.sub("[=:]", ":", each, count=1) for each in _pairs(file.extra_hosts)],
    }
    host: dict[str, Json] = {key: size(where, each) for key, each in sizes.items() if each}
    host |= {key: whole(where, key, each) for key, each in numbers.items() if each}
    host |= {key: True for key, each in switches.items() if flag(where, each)}
    host |= {key: each for key, each in lists.items() if each}
    cpus = float(file.cpus or limits.cpus or 0)
    if cpus:
        host["NanoCpus"] = round(cpus * 1e9)
    if file.cpuset:
        host["CpusetCpus"] = file.cpuset
    if file.ipc:
        host["IpcMode"] = file.ipc
    if file.sysctls:
        host["Sysctls"] = words(file.sysctls, {})
    if file.ulimits:
        host["Ulimits"] = [_ulimit(where, key, each) for key, each in file.ulimits.items()]
    return host | {"RestartPolicy": _restart(where, file.restart)}


def _restart(where: str, told: str) -> Json:
    name, _, times = told.partition(":")
    if name not in ("no", "always", "unless-stopped", "on-failure"):
        raise UsageError(f"{where}: restart: {told} is none of no, always, on-failure")
    count = whole(where, "restart", times) if times else 0
    return {"Name": name, "MaximumRetryCount": count}


def _ulimit(where: str, name: str, told: int | str | UlimitFile) -> Json:
    both = told if isinstance(told, UlimitFile) else UlimitFile(soft=told, hard=told)
    soft, hard = whole(where, name, both.soft), whole(where, name, both.hard)
    return {"Name": name, "Soft": soft, "Hard": hard}


# -- volumes, and what else lies in its file system


def _mounts(where: str, file: ServiceFile, around: Surroundings) -> _Mounts:
    found = _Mounts((), {}, {}, {}, {})
    own: list[str] = []
    for each in file.volumes:
        mount = each if isinstance(each, MountFile) else _mount(where, each)
        target, reads = mount.target.rstrip("/") or "/", flag(where, mount.read_only)
        if not target.startswith("/"):
            raise UsageError(f"{where}: the volume's target {mount.target} is no absolute path")
        if mount.type == "tmpfs":
            found.tmpfs[target] = _tmpfs_options(where, mount)
        elif mount.type == "bind":
            source = (around.directory / Path(mount.source).expanduser()).resolve()
            _check_bind(where, mount.source, source, creates=not reads)
            if reads:
                found.binds[target] = str(source)
                continue
            if source.exists():
                found.copies[target] = str(source)
            if not source.is_file():
                own.append(target)
        elif not mount.source:
            own.append(target)
        elif mount.source not in around.volumes:
            raise UsageError(f"{where}: the file's volumes have no {mount.source}")
        elif mount.source in around.shared or reads:
            found.shared[target] = mount.source + (":ro" if reads else "")
        else:
            own.append(target)
    for each in _list(file.tmpfs):
        target, _, options = each.partition(":")
        found.tmpfs[target] = options
    return _Mounts(tuple(own), found.shared, found.binds, found.copies, found.tmpfs)


def _mount(where: str, text: str) -> MountFile:
    """SOURCE:TARGET:MODE, of which TARGET alone must be there."""
    parts = text.split(":")
    if len(parts) > 3:
        raise UsageError(f"{where}: volumes: {text} is no SOURCE:TARGET:MODE")
    source, target = ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    modes = parts[2].split(",") if len(parts) == 3 else []
    for mode in modes:
        if mode not in MODES:
            raise UsageError(f"{where}: volumes: {text}: the mode {mode} is not honoured")
    kind: Literal["bind", "volume"] = "bind" if source[:1] in ("/", ".", "~") else "volume"
    return MountFile(type=kind, source=source, target=target, read_only="ro" in modes)


def _check_bind(where: str, told: str, source: Path, *, creates: bool) -> None:
    if source.is_file() or source.is_dir():
        return
    if source.exists():
        raise UsageError(f"{where}: {told} is neither a file nor a directory: it is not mounted")
    if not creates:
        raise UsageError(f"{where}: there is no {told} beside the compose file")


def _tmpfs_options(where: str, mount: MountFile) -> str:
    told = mount.tmpfs
    options = [f"size={size(where, told.size)}"] if told.size else []
    if told.mode:
        options.append(f"mode={told.mode:o}" if isinstance(told.mode, int) else f"mode={told.mode}")
    return ",".join(options)


def _contents(
    where: str, file: ServiceFile, around: Surroundings, copies: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Its secrets and configs by where they are; those that are files become copies."""
    for kind, grants, known, usual in (
        ("secrets", file.secrets, around.secrets, "/run/secrets/"),
        ("configs", file.configs, around.configs, "/"),
    ):
        for each in grants:
            grant = GrantFile(source=each) if isinstance(each, str) else each
            if grant.uid or grant.gid or grant.mode:
                raise UsageError(f"{where}: uid, gid and mode of {kind} are not honoured")
            if grant.source not in known:
                raise UsageError(f"{where}: the file's {kind} have no {grant.source}")
            what, place = known[grant.source], grant.target or grant.source
            place = place if place.startswith("/") else usual + place
            if what.file:
                source = (around.directory / what.file).resolve()
                _check_bind(where, what.file, source, creates=False)
                copies[place] = str(source)
            elif what.environment:
                if what.environment not in around.environment:
                    raise UsageError(f"{where}: {grant.source}: {what.environment} is not set")
                yield place, around.environment[what.environment]
            else:
                yield place, what.content


# -- values


def split(told: Texts) -> list[str]:
    return shlex.split(told) if isinstance(told, str) else list(told)


def words(told: Words, outer: Environment) -> dict[str, str]:
    """By name. One without a value is taken from ``outer``, where it is set."""
    found: dict[str, str] = {}
    if isinstance(told, dict):
        pairs = [(key, None if value is None else _text(value)) for key, value in told.items()]
    else:
        parts = [each.partition("=") for each in told]
        pairs = [(key, value if equals else None) for key, equals, value in parts]
    for key, value in pairs:
        if value is not None:
            found[key] = value
        elif key in outer:
            found[key] = outer[key]
    return found


def _pairs(told: Words) -> list[str]:
    return [f"{k}={_text(v)}" for k, v in told.items()] if isinstance(told, dict) else told


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list(told: Texts) -> list[str]:
    return [told] if isinstance(told, str) else told


def flag(where: str, told: Switch) -> bool:
    if isinstance(told, bool):
        return told
    if told.lower() not in ("true", "false"):
        raise UsageError(f"{where}: {told!r} is neither true nor false")
    return told.lower() == "true"


def whole(where: str, what: str, told: Number) -> int:
    try:
        return int(told)
    except ValueError:
        raise UsageError(f"{where}: {what}: {told} is no whole number") from None


def seconds(where: str, told: str) -> float:
    """1m30s, as Compose writes times."""
    found = re.findall(r"(\d+(?:\.\d+)?)(us|µs|ms|s|m|h)", told)
    if "".join(number + unit for number, unit in found) != told and told != "0":
        raise UsageError(f"{where}: {told!r} is no time, such as 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in found)


def size(where: str, told: Number) -> int:
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)\s*([bkmgt]?)b?", str(told).lower())
    if found is None:
        raise UsageError(f"{where}: {told!r} is no size, such as 64m")
    return int(float(found[1]) * _BYTES[found[2]])
