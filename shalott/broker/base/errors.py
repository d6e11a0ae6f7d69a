"""Every error a broker raises on purpose.

BrokerError
 ├─ ConfigError            the node's configuration can't be used
 ├─ ProcessError
 │   ├─ NoProcess          the target isn't there (or died before it answered)
 │   ├─ NodeDown           the target's node can't be reached
 │   └─ CallTimeout        no answer in time
 ├─ MetadataUnavailable    this node has no leader to write through at the moment
 ├─ MessageIllegal         a message that no store takes
 └─ StorageError           a file is not what it should be, or can't be written any more
     └─ DiskFull            no room: nothing was lost, the same write may succeed later
"""

from __future__ import annotations


class BrokerError(Exception):
    """Base of all."""


class ConfigError(BrokerError): ...


class ProcessError(BrokerError): ...


class NoProcess(ProcessError): ...


class NodeDown(ProcessError): ...


class CallTimeout(ProcessError): ...


class MetadataUnavailable(BrokerError): ...


class StorageError(BrokerError): ...


class DiskFull(StorageError): ...


class MessageIllegal(BrokerError):
    """A message that no store takes: too long a topic, properties or body."""


def cannot_listen(protocol: str, host: str, port: int, setting: str, error: OSError) -> ConfigError:
    """The one sentence for a port that can't be had."""
    reason = (error.strerror or str(error)).rpartition("): ")[2]  # asyncio repeats the address
    return ConfigError(
        f"cannot listen for {protocol} on {host}:{port}: {reason}; set another {setting},"
        " or end what uses this one"
    )
