"""A compose file's services, networks and volumes as structs: the keys that are honoured.

What stands in a file and not here is refused by its name before anything boots, so every key below
has a reader (service.py, project.py). A key that says nothing about what a container does, as
``labels``, is here too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shalott.cluster.services import Condition

Word = str | int | float | bool | None
Words = dict[str, Word] | list[str]  # NAME=VALUE, or a mapping
Texts = str | list[str]
Number = int | float | str  # a text where a variable was filled in
Switch = bool | str


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a file in which nothing is passed over."""


class Own(_Part, frozen=True, kw_only=True):
    """``x-shalott`` of a service."""

    node: bool | None = None  # it is broken, and clients may connect to it
    port: int | Literal[False] | None = None  # of clients; false: no client connects
    data: str = ""  # which of its volumes lies on a disk of ours
    job: bool | None = None  # of one that is no node: the load begins when it has ended


class BuildFile(_Part, frozen=True, kw_only=True):
    context: str = "."
    dockerfile: str = "Dockerfile"
    dockerfile_inline: str = ""
    args: Words = {}
    target: str = ""
    labels: Words = {}


class DependencyFile(_Part, frozen=True, kw_only=True):
    condition: Condition = "service_started"
    restart: bool = False
    required: bool = True


class HealthFile(_Part, frozen=True, kw_only=True):
    test: Texts | None = None
    interval: str = "30s"
    timeout: str = "30s"
    retries: Number = 3
    start_period: str = "0s"
    start_interval: str = "5s"
    disable: Switch = False


class BindFile(_Part, frozen=True, kw_only=True):
    create_host_path: bool = True


class VolumeOptionsFile(_Part, frozen=True, kw_only=True):
    nocopy: bool = False


class TmpfsFile(_Part, frozen=True, kw_only=True):
    size: Number = 0
    mode: Number = ""


class MountFile(_Part, frozen=True, kw_only=True):
    type: Literal["volume", "bind", "tmpfs"]
    target: str
    source: str = ""
    read_only: Switch = False
    bind: BindFile = BindFile()
    volume: VolumeOptionsFile = VolumeOptionsFile()
    tmpfs: TmpfsFile = TmpfsFile()
    consistency: str = ""


class PortFile(_Part, frozen=True, kw_only=True):
    target: Number
    published: Number = ""
    host_ip: str = ""
    protocol: str = "tcp"
    mode: str = "host"
    name: str = ""
    app_protocol: str = ""


class GrantFile(_Part, frozen=True, kw_only=True):
    """A secret or a config that a service gets."""

    source: str
    target: str = ""
    uid: str = ""
    gid: str = ""
    mode: Number = ""


class NetworkUseFile(_Part, frozen=True, kw_only=True):
    aliases: list[str] = []
    ipv4_address: str = ""
    priority: int = 0


class LimitsFile(_Part, frozen=True, kw_only=True):
    cpus: Number = 0
    memory: Number = 0
    pids: Number = 0


class ReservationsFile(_Part, frozen=True, kw_only=True):
    cpus: Number = 0
    memory: Number = 0


class ResourcesFile(_Part, frozen=True, kw_only=True):
    limits: LimitsFile = LimitsFile()
    reservations: ReservationsFile = ReservationsFile()


class DeployFile(_Part, frozen=True, kw_only=True):
    mode: Literal["replicated"] = "replicated"
    replicas: Number = 1
    resources: ResourcesFile = ResourcesFile()
    labels: Words = {}


class UlimitFile(_Part, frozen=True, kw_only=True):
    soft: Number
    hard: Number


class LoggingFile(_Part, frozen=True, kw_only=True):
    driver: Literal["json-file", "local"] = "json-file"
    options: dict[str, Word] = {}


class ServiceFile(_Part, frozen=True, kw_only=True):
    image: str = ""
    build: str | BuildFile | None = None
    command: Texts | None = None
    entrypoint: Texts | None = None
    environment: Words = {}
    env_file: str | list[str | dict[str, str | bool]] = []
    ports: list[int | str | PortFile] = []
    expose: list[int | str] = []
    volumes: list[str | MountFile] = []
    tmpfs: Texts = []
    secrets: list[str | GrantFile] = []
    configs: list[str | GrantFile] = []
    networks: list[str] | dict[str, NetworkUseFile | None] = []
    network_mode: Literal["bridge", ""] = ""
    links: list[str] = []
    extra_hosts: Words = {}
    depends_on: list[str] | dict[str, DependencyFile] = []
    healthcheck: HealthFile | None = None
    restart: str = "no"
    deploy: DeployFile = DeployFile()
    scale: Number = 1
    profiles: list[str] = []
    hostname: str = ""
    domainname: str = ""
    container_name: str = ""
    user: Number = ""
    working_dir: str = ""
    stop_signal: str = ""
    stop_grace_period: str = ""
    init: Switch = False
    privileged: Switch = False
    read_only: Switch = False
    tty: Switch = False
    stdin_open: Switch = False
    cap_add: list[str] = []
    cap_drop: list[str] = []
    security_opt: list[str] = []
    group_add: list[Number] = []
    ulimits: dict[str, int | str | UlimitFile] = {}
    sysctls: Words = {}
    shm_size: Number = 0
    mem_limit: Number = 0
    mem_reservation: Number = 0
    memswap_limit: Number = 0
    cpus: Number = 0
    cpu_shares: Number = 0
    cpuset: str = ""
    pids_limit: Number = 0
    oom_score_adj: Number = 0
    dns: Texts = []
    dns_search: Texts = []
    dns_opt: list[str] = []
    ipc: Literal["private", "shareable", ""] = ""
    logging: LoggingFile = LoggingFile()
    pull_policy: Literal["missing", "if_not_present", ""] = ""
    labels: Words = {}
    annotations: Words = {}
    attach: bool = True
    own: Own = msgspec.field(default=Own(), name="x-shalott")


class PoolFile(_Part, frozen=True, kw_only=True):
    subnet: str = ""
    gateway: str = ""


class AddressesFile(_Part, frozen=True, kw_only=True):
    driver: Literal["default", ""] = ""
    config: list[PoolFile] = []


class NetworkFile(_Part, frozen=True, kw_only=True):
    name: str = ""
    driver: Literal["bridge", ""] = ""
    external: Literal[False] = False
    internal: Literal[False] = False
    attachable: bool = False
    enable_ipv6: Literal[False] = False
    ipam: AddressesFile = AddressesFile()
    labels: Words = {}


class VolumeFile(_Part, frozen=True, kw_only=True):
    name: str = ""
    driver: Literal["local", ""] = ""
    external: Literal[False] = False
    labels: Words = {}


class ContentFile(_Part, frozen=True, kw_only=True):
    """What a secret or a config is."""

    file: str = ""
    environment: str = ""
    content: str = ""
    external: Literal[False] = False
    name: str = ""


class ProjectFile(_Part, frozen=True, kw_only=True):
    services: dict[str, ServiceFile]
    networks: dict[str, NetworkFile | None] = {}
    volumes: dict[str, VolumeFile | None] = {}
    secrets: dict[str, ContentFile] = {}
    configs: dict[str, ContentFile] = {}
    name: str = ""
    version: Number = ""  # obsolete, and without meaning
