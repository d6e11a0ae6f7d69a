"""A node's configuration: parsed once from TOML at the edge, frozen, passed on explicitly."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from broker.errors import BrokerError, ConfigError
from broker.known_bugs import check_bugs
from broker.rocketmq.addresses import controller_addresses
from broker.rocketmq.config import PORT_NAMES, RocketConfig

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another node, and where this node dials it (a relay's address in the local backend)."""

    name: str
    host: str
    port: Port


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a node knows before it starts. Ports may not be 0: peers must know them."""

    name: str
    data_dir: str
    peers: tuple[Peer, ...] = ()  # the other nodes of the cluster, not this one
    bind_host: str = "0.0.0.0"
    amqp_port: Port = 5672
    cluster_port: Port = 25672
    management_port: Port = 15672
    cookie: str = "shalott"  # nodes with another cookie are refused
    # How long a silent peer is believed to be alive. RabbitMQ's default is 60 s; 4 s keeps tests
    # short.
    net_tick_ms: Positive = 4000
    partition_mode: Literal["ignore", "pause_minority", "autoheal"] = "ignore"
    heartbeat_s: int = 60  # offered to AMQP clients
    frame_max: Annotated[int, msgspec.Meta(ge=4096)] = 131072  # the protocol's own minimum
    channel_max: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 2047
    slave_wait_timeout_ms: int = 15000
    sync_batch_size: int = 4096
    table_wait_timeout_ms: int = (
        30000  # how long a booting node waits for fresher nodes before it says so again
    )
    # At most so long between "tables loaded" and "queue supervisor up", drawn at every start
    # (KB-RMQ-01).
    startup_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    users: dict[str, str] = msgspec.field(default_factory=lambda: {"guest": "guest"})
    bugs: tuple[str, ...] = ()  # ids of known_bugs.py that are switched on
    seed: int = 0  # of the node's random source; 0 means: draw one

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node of the cluster, sorted, this one among them."""
        return tuple(sorted((self.name, *(peer.name for peer in self.peers))))


def load_config(path: Path) -> NodeConfig | RocketConfig:
    """Read a node's TOML file: of a RocketMQ node if it names a ``system``. Raises ConfigError with
    one sentence that says what to mend.
    """
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        config = parse_config(raw)
        check_bugs(config.bugs)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def parse_config(raw: dict[str, Any]) -> NodeConfig | RocketConfig:
    """What a node's TOML says, as the configuration of its kind. Raises ConfigError and
    msgspec.ValidationError.
    """
    if "system" not in raw:
        return msgspec.convert(raw, NodeConfig)
    config = msgspec.convert(raw, RocketConfig)
    check_rocket_config(config)
    return config


def check_rocket_config(config: RocketConfig) -> None:
    """Raises ConfigError if its parts do not go together."""
    needed = {
        "broker": ("remoting", "raft" if config.system == "dledger" else "ha"),
        "nameserver": ("nameserver",),
        "controller": ("controller", "raft"),
    }
    if not config.services:
        raise ConfigError("a node needs services: broker, nameserver or controller")
    for service in config.services:
        for port in needed[service]:
            if port not in config.ports:
                raise ConfigError(f"the service {service} needs a port: set ports.{port}")
            if port not in config.advertised:
                raise ConfigError(f"the port {port} is known to nobody: set advertised.{port}")
    if "management" not in config.ports:
        raise ConfigError("every node answers questions: set ports.management")
    for port in config.ports:
        if port not in PORT_NAMES:
            raise ConfigError(f"there is no port {port!r}; there are {', '.join(PORT_NAMES)}")
    _check_controllers(config)


def _check_controllers(config: RocketConfig) -> None:
    """Whether brokers under controllers will find some. Raises ConfigError."""
    if config.system != "controller":
        if config.broker.controller_addr:
            raise ConfigError(f"{config.system} has no controllers: leave out controller_addr")
        return
    try:
        found = controller_addresses(config)
    except BrokerError as error:
        raise ConfigError(f"broker.controller_addr: {error}") from error
    if not found:
        raise ConfigError(
            "the system controller needs a node with the service controller: list it among the"
            " peers, or set broker.controller_addr"
        )
