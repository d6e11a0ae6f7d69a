"""controllerAddr: addresses with ";" between them, in place of the peers that host controllers."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.base.errors import ConfigError
from shalott.broker.rocket.config import (
    BrokerConfig,
    RocketConfig,
    RocketPeer,
    check_rocket_config,
    controller_addresses,
)

pytestmark = pytest.mark.unit

PEERS = tuple(
    RocketPeer(
        name=name,
        services=("controller",),
        advertised={"controller": f"{name}:9877", "raft": f"{name}:9878"},
        dial={"controller": "127.0.0.1:1", "raft": "127.0.0.1:2"},
    )
    for name in ("c1", "c2")
)


def broker(controller_addr: str, **more: Any) -> RocketConfig:
    ports = {"remoting": 10911, "ha": 10912, "management": 15672}
    fields: dict[str, Any] = {
        "system": "controller",
        "name": "b1",
        "data_dir": "data",
        "services": ("broker",),
        "ports": ports,
        "advertised": {port: f"b1:{number}" for port, number in ports.items()},
        "peers": PEERS,
        "broker": BrokerConfig(controller_addr=controller_addr),
    }
    return RocketConfig(**{**fields, **more})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ("c1:9877", "c2:9877")),  # the peers'
        (" ; ", ("c1:9877", "c2:9877")),
        ("127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879", (9877, 9878, 9879)),
        (" 127.0.0.1:9877 ;127.0.0.1:9877;;127.0.0.1:9878; ", (9877, 9878)),
    ],
)
def test_the_string_counts_and_else_the_peers(given: str, wanted: tuple[str | int, ...]) -> None:
    addresses = tuple(f"127.0.0.1:{one}" if isinstance(one, int) else one for one in wanted)
    config = broker(given)
    check_rocket_config(config)
    assert controller_addresses(config) == addresses
    if given.strip("; "):
        assert controller_addresses(broker(given, peers=())) == addresses
        check_rocket_config(broker(given, peers=()))


@pytest.mark.parametrize("given", ["c1", "c1:9877;c2", "c1:port"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^broker.controller_addr: '.*' is no address"):
        check_rocket_config(broker(given))


def test_a_broker_that_would_find_no_controller_is_refused() -> None:
    with pytest.raises(ConfigError, match="list it among the peers, or set broker.controller_addr"):
        check_rocket_config(broker("", peers=()))
