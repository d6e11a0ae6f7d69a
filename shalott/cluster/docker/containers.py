"""The calls that make, fill and read one node's container. All of them block; the Engine runs
them."""

from __future__ import annotations

import io
import logging
import re
import secrets
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import docker
import docker.errors

from shalott.cluster.docker.engine_words import lay_over, put_contents
from shalott.cluster.docker.names import LABEL_NODE, LABEL_TOKEN
from shalott.cluster.node_files import unpack
from shalott.cluster.nodes import CommandResult, NodeSpec, NodeState, NodeStatus

log = logging.getLogger("shalott.cluster.docker")

BASE_TAG = "debian:bookworm-slim"
CONFIG_DIR = "/etc/shalott"
DATA_DIR = "/data"
MORE_DIR = "/more"  # where a helper has the volumes that hold no data directory
READINGS_MAX = 10  # of a directory whose files change meanwhile
LOG_MAX = "64m"  # of what a node prints; it never fills the host's disk


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that a node's container is made from, so that it can be made again."""

    spec: NodeSpec
    name: str  # of the container and of its volume
    image: str
    network: str
    address: str
    hosts: Mapping[str, str]  # the other nodes' addresses by name
    labels: Mapping[str, str]
    tmpfs: Mapping[str, str]  # directories in memory, with their mount options
    room: Mapping[str, str] = field(default_factory=dict)  # its volume's own, if it has a bound
    printed_since_s: float | None = None  # by the engine's clock; earlier output is another run's
    aliases: Sequence[str] = ()  # NAME:ADDRESS, beside the nodes' own names
    is_node: bool = True  # or it helps the nodes, and its end is no news

    @property
    def data(self) -> str:
        """Where its volume is; "": it has none."""
        return DATA_DIR if self.spec.container is None else self.spec.container.data

    @property
    def volumes(self) -> dict[str, str]:
        """The places of its own volumes, by the volumes' names."""
        more = self.spec.container.volumes if self.spec.container is not None else ()
        own = {self.name: self.data} if self.data else {}
        return own | {f"{self.name}-{number}": place for number, place in enumerate(more, 2)}

    @property
    def runs(self) -> tuple[object, ...]:
        """What its container was made for."""
        spec = self.spec
        return (self.image, spec.command, spec.environment, sorted(spec.files), spec.container)


def create(api: docker.APIClient, machine: Machine) -> None:
    """Make the volume and the container and put the configuration files in; does not start it."""
    labels = {**machine.labels, **({LABEL_NODE: machine.spec.name} if machine.is_node else {})}
    for volume in machine.volumes:
        room = dict(machine.room) if volume == machine.name else {}
        api.create_volume(volume, labels=labels, driver_opts=room or None)
    restart = "always" if machine.spec.restart_if_exits else "no"
    host_config = api.create_host_config(
        binds={name: {"bind": place, "mode": "rw"} for name, place in machine.volumes.items()},
        cap_add=["NET_ADMIN"],
        extra_hosts=[*(f"{n}:{a}" for n, a in machine.hosts.items()), *machine.aliases],
        network_mode=machine.network,
        tmpfs=dict(machine.tmpfs),
        restart_policy={"Name": restart},
        log_config={"Type": "json-file", "Config": {"max-size": LOG_MAX}},
    )
    endpoint = api.create_endpoint_config(ipv4_address=machine.address)
    config = api.create_container_config(
        machine.image,
        command=[fill_placeholders(word) for word in machine.spec.command],
        environment={k: fill_placeholders(v) for k, v in machine.spec.environment.items()},
        hostname=machine.spec.name,
        labels=labels,
        host_config=host_config,
        networking_config=api.create_networking_config({machine.network: endpoint}),
    )
    if machine.spec.container is not None:
        lay_over(config, machine.spec.container, machine.labels[LABEL_TOKEN])
    api.create_container_from_config(config, machine.name)
    if machine.spec.container is not None:
        put_contents(api, machine.name, machine.spec.container)
    if machine.spec.files or machine.spec.container is None:
        api.put_archive(machine.name, "/", _config_archive(machine.spec.files))


def make_again(
    api: docker.APIClient, *, old: Machine, new: Machine, past: Sequence[str] = ()
) -> None:
    """A stopped node's container for another run, on the same volume: the same one with other
    configuration files, if it would run the same program. ``past``: former containers, to be
    removed."""
    for name in past:
        api.remove_container(name, force=True)
    if new.runs == old.runs:
        put_files(api, new, new.spec.files)
        return
    api.remove_container(old.name, force=True)
    create(api, new)


def time_of_engine(api: docker.APIClient) -> float:
    """Seconds, as the engine dates what nodes print."""
    return datetime.fromisoformat(_in_microseconds(str(api.info()["SystemTime"]))).timestamp()


def _in_microseconds(text: str) -> str:
    """Engines tell nanoseconds, or as many digits as there are."""
    return re.sub(r"\.(\d+)", lambda found: f".{found[1][:6]:0<6}", text).replace("Z", "+00:00")


def replace_container(api: docker.APIClient, old: Machine, new: Machine, past: str) -> None:
    """Make a stopped node's container anew, on the same volume. The old one is kept under the name
    ``past``, for what it printed; it carries the run's labels, and goes with the run."""
    api.rename(old.name, past)
    api.update_container(past, restart_policy={"Name": "no"})
    create(api, new)


def image_of(api: docker.APIClient, name: str) -> str:
    """The id of the image that a container is made from."""
    return str(api.inspect_container(name)["Image"])


def put_files(api: docker.APIClient, machine: Machine, files: Mapping[str, str]) -> None:
    """Replace configuration files of a node, whether it runs or not."""
    api.put_archive(machine.name, "/", _config_archive(files))


def fill_placeholders(text: str) -> str:
    filled = text.replace("{config}", CONFIG_DIR).replace("{data}", DATA_DIR)
    return filled.replace("{python}", "python3")


def _config_archive(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        directory = tarfile.TarInfo(CONFIG_DIR.lstrip("/"))
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(directory)
        for path, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{CONFIG_DIR.lstrip('/')}/{path}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def status(api: docker.APIClient, name: str) -> NodeStatus:
    """The container's state in the contract's words."""
    try:
        state = api.inspect_container(name)["State"]
    except docker.errors.NotFound:
        return NodeStatus(state="absent")
    if state["Paused"]:
        word: NodeState = "paused"
    elif state["Running"] and not state["Restarting"]:
        word = "running"
    else:
        created = state["Status"] == "created"
        return NodeStatus(state="exited", exit_code=None if created else state["ExitCode"])
    return NodeStatus(state=word, pid=state["Pid"])


def address_of(api: docker.APIClient, name: str, network: str) -> str:
    """In that network; "" if the container has none now."""
    networks = api.inspect_container(name)["NetworkSettings"]["Networks"]
    return str(networks.get(network, {}).get("IPAddress", ""))


def kill_and_wait(api: docker.APIClient, name: str) -> None:
    """SIGKILL to a container, which may have ended."""
    try:
        api.kill(name)
    except docker.errors.APIError as error:
        if "is not running" not in str(error):
            raise
    api.wait(name)


# Runs a command, and says behind what it says that this was all.
MARKED = '"$@"; code=$?; printf "\\n%s\\n" "$0"; exit $code'
NO_SHELL = (126, 127)


def execute(api: docker.APIClient, name: str, words: Sequence[str]) -> CommandResult:
    """Run a command in a container to its end.

    Docker loses what a process says now and then (2 of 1,200 outputs here, 20.10): a shell, where
    the image has one, ends it with a mark, so that the loss is known.
    """
    mark = f"ended-{secrets.token_hex(8)}"
    found = execute_alone(api, name, ["sh", "-c", MARKED, mark, *words])
    said, end, _ = found.output.rpartition(f"\n{mark}\n")
    if end:
        return CommandResult(found.exit_code, said)
    if found.exit_code in NO_SHELL:
        return execute_alone(api, name, words)
    return CommandResult(found.exit_code, found.output, is_whole=False)


def execute_alone(api: docker.APIClient, name: str, words: Sequence[str]) -> CommandResult:
    """The same without a shell around it; what it says may be lost, unnoticed."""
    identity = api.exec_create(name, list(words))["Id"]
    output = api.exec_start(identity)
    code = api.exec_inspect(identity)["ExitCode"]
    return CommandResult(exit_code=code, output=output.decode(errors="replace"))


def last_lines(api: docker.APIClient, machine: Machine, lines: int) -> str:
    """Of what a node printed in this run."""
    raw = api.logs(machine.name, tail=lines, since=machine.printed_since_s)
    return str(raw.decode(errors="replace"))


def ran_out_of_memory(api: docker.APIClient, name: str) -> bool:
    """Whether the kernel ended its last life, or a process of it, for want of memory."""
    return bool(api.inspect_container(name)["State"].get("OOMKilled"))


def create_beside(
    api: docker.APIClient, machine: Machine, command: Sequence[str], name: str | None = None
) -> str:
    """A container, not started, that has a node's volumes and no network; its id. The data
    directory's is at DATA_DIR.

    It takes a program, which the node's own image may lack: that of the base image comes first.
    """
    if not machine.volumes:
        raise docker.errors.DockerException(f"{machine.spec.name} has no volume")
    places = {name: f"{MORE_DIR}/{name}" for name in machine.volumes} | {machine.name: DATA_DIR}
    binds = {name: {"bind": places[name], "mode": "rw"} for name in machine.volumes}
    host_config = api.create_host_config(binds=binds, network_mode="none")
    try:
        image = str(api.inspect_image(BASE_TAG)["Id"])
    except docker.errors.ImageNotFound:
        image = machine.image
    made = api.create_container(
        image,
        entrypoint=list(command),
        command=[],
        name=name,
        labels=dict(machine.labels),
        host_config=host_config,
    )
    return str(made["Id"])


def run_on_volume(api: docker.APIClient, machine: Machine, command: Sequence[str]) -> str:
    """What a program prints that has a node's volume. The node's own container, and so its output,
    stays. Raises DockerException."""
    helper = create_beside(api, machine, command)
    try:
        api.start(helper)
        code = api.wait(helper)["StatusCode"]
        said = str(api.logs(helper, stdout=True, stderr=code != 0).decode(errors="replace"))
    finally:
        api.remove_container(helper, force=True)
    if code != 0:
        raise docker.errors.DockerException(
            f"{command[0]} fails on the data of {machine.spec.name}: {said.strip()}"
        )
    return said


def erase_volume(api: docker.APIClient, machine: Machine) -> None:
    """Empty a stopped node's volumes."""
    more = [f"{MORE_DIR}/{name}" for name in machine.volumes if name != machine.name]
    places = [*([DATA_DIR] if machine.data else []), *more]
    run_on_volume(api, machine, ["find", *places, "-mindepth", "1", "-delete"])


def collect(api: docker.APIClient, machine: Machine, into: Path, past: Sequence[str] = ()) -> None:
    """Bring the node's output and its collectable files to ``into``. ``past``: its former
    containers, the first one first."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        with (into / "output.log").open("wb") as file:
            for name in (*past, machine.name):
                for chunk in api.logs(
                    name, stream=True, follow=False, since=machine.printed_since_s
                ):
                    file.write(chunk)
        for path in machine.spec.collect:
            _bring(api, machine.name, path, into)
    except docker.errors.NotFound:
        return  # a node that was never made has nothing to say


def _bring(api: docker.APIClient, name: str, path: str, into: Path) -> None:
    """The engine breaks an archive off at a file that shrinks while it is read, as a table does
    that a broker writes anew (3 of 60 here, of one that did nothing else): then it is read
    again."""
    target = (into / path).parent
    target.mkdir(parents=True, exist_ok=True)
    for _ in range(READINGS_MAX):
        try:
            chunks, _ = api.get_archive(name, f"{DATA_DIR}/{path}")
        except docker.errors.NotFound:
            return
        try:
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                unpack(archive, target)
        except tarfile.ReadError:
            continue
        return
    log.warning("%s of %s changed whenever it was read: files may be missing", path, name)
