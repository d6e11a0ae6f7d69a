"""Whether the parts of a RocketMQ node's configuration go together."""

from __future__ import annotations

from shalott.broker.base.errors import BrokerError, ConfigError
from shalott.broker.rocket.addresses import controller_addresses
from shalott.broker.rocket.config import PORT_NAMES, RocketConfig


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
