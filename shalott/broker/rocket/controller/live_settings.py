"""The controllers' settings as operators read and change them at run time (1009, 1010): a body of
lines "name=value" with upstream's names. Changes are this process's: a restart forgets them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import ControllerConfig

# Upstream's name: ours.
NAMES: Mapping[str, str] = {
    "scanNotActiveBrokerInterval": "scan_not_active_broker_interval_ms",
    "scanInactiveMasterInterval": "scan_inactive_master_interval_ms",
    "electMasterMaxRetryCount": "elect_master_max_retry_count",
    "enableElectUncleanMaster": "enable_elect_unclean_master",
    "isProcessReadEvent": "is_process_read_event",
    "notifyBrokerRoleChanged": "notify_broker_role_changed",
}


class LiveSettings:
    """``now`` is what holds at present."""

    def __init__(self, settings: ControllerConfig) -> None:
        self.now = settings

    def text(self) -> bytes:
        """The body of the answer to 1010."""
        values = msgspec.to_builtins(self.now)
        return "".join(f"{name}={_text(values[field])}\n" for name, field in NAMES.items()).encode()

    def change(self, body: bytes) -> None:
        """Carry out a 1009. Names that are not ours are passed over, as upstream does.

        Raises BrokerError, and changes nothing, if a value is none of its kind.
        """
        values = msgspec.to_builtins(self.now)
        for line in body.decode(errors="replace").splitlines():
            name, equals, value = line.partition("=")
            field = NAMES.get(name.strip())
            if equals and field is not None:
                values[field] = value.strip()
        try:
            self.now = msgspec.convert(values, ControllerConfig, strict=False)
        except msgspec.ValidationError as error:
            raise BrokerError(f"no such settings: {error}") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
