"""A node, of either family of brokers: its configuration as it is read, and how it is opened.

A process runs one family, and loads no more: the other's modules are half of what a node's start
costs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shalott.broker.base.env import Platform
from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import check_bugs
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.node.node_state import MEMBER, Standing
from shalott.broker.rocket.config import RocketConfig, check_rocket_config

if TYPE_CHECKING:
    from shalott.broker.rabbit.node.node import Node
    from shalott.broker.rocket.node.node import RocketNode

    AnyNode = Node | RocketNode


async def open_node(
    config: NodeConfig | RocketConfig, platform: Platform, *, standing: Standing = MEMBER
) -> AnyNode:
    """The node that ``config`` describes; see Node.open, with ``standing``, and RocketNode.open."""
    if isinstance(config, RocketConfig):
        from shalott.broker.rocket.node.node import RocketNode

        return await RocketNode.open(config, platform)
    from shalott.broker.rabbit.node.node import Node

    return await Node.open(config, platform, standing=standing)


# -- the configuration -----------------------------------------------------------------------------


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


def parse_config(raw: dict[str, object]) -> NodeConfig | RocketConfig:
    """What a node's TOML says, as the configuration of its kind. Raises ConfigError and
    msgspec.ValidationError.
    """
    if "system" not in raw:
        return msgspec.convert(raw, NodeConfig)
    config = msgspec.convert(raw, RocketConfig)
    check_rocket_config(config)
    return config
