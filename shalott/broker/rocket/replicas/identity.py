"""A broker's identity: the id that the controllers gave it, and how it gets one exactly once.

Source: broker/controller/ReplicasManager.java, store/ha/autoswitch/{BrokerMetadata,
TempBrokerMetadata}.java; docs/protocols.md 3.5. An id is asked for, written to a temporary file
together with a check code, applied for, and written to the file of the broker's metadata. A crash
between any two steps leaves files from which the next life goes on: an application is repeated with
the same check code, and the controllers take it for the same one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, DiskFull, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.controller.client import Master
from shalott.broker.rocket.controller.messages import BrokerIdInvalid

PATH = "brokerIdentity"
TEMPORARY_PATH = "brokerIdentity-temp"
NS_PER_MS = 1_000_000


class RegisterState(enum.Enum):
    INITIAL = "initial"
    CREATE_TEMP_METADATA_FILE_DONE = "the temporary file is written"
    CREATE_METADATA_FILE_DONE = "the metadata file is written"
    REGISTERED = "registered"


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """``check_code`` is in the temporary file only."""

    cluster: str
    name: str
    broker_id: int
    check_code: str = ""

    def encode(self) -> bytes:
        fields = [self.cluster, self.name, str(self.broker_id)]
        return "#".join([*fields, self.check_code] if self.check_code else fields).encode()


def decode(data: bytes, path: str, *, has_check_code: bool) -> BrokerMetadata:
    """Raises StorageError."""
    try:
        cluster, name, broker_id, *rest = data.decode().split("#")
        if len(rest) == has_check_code:
            return BrokerMetadata(cluster, name, int(broker_id), "".join(rest))
    except ValueError:
        pass
    raise StorageError(f"{path} holds no identity of a broker")


class Registrar(Protocol):
    """The part of a ControllerClient that gives identities."""

    async def next_broker_id(self, cluster: str, group: str) -> int: ...

    async def apply_broker_id(
        self, cluster: str, group: str, broker_id: int, check_code: str
    ) -> None: ...

    async def register_broker(
        self, cluster: str, group: str, broker_id: int, address: str
    ) -> Master: ...


class BrokerIdentity:
    """Made by ``open``; ``register`` may be called until it succeeds."""

    def __init__(self, env: Env, cluster: str, group: str, address: str) -> None:
        """Use ``open``."""
        self.state = RegisterState.INITIAL
        self.broker_id: int | None = None
        self._temporary: BrokerMetadata | None = None
        self._cluster = cluster
        self._group = group
        self._address = address
        self._clock = env.clock
        self._disk: Disk = env.disk

    @classmethod
    async def open(cls, env: Env, *, cluster: str, group: str, address: str) -> BrokerIdentity:
        """Go on where a former life was. Raises StorageError."""
        identity = cls(env, cluster, group, address)
        temporary = await _read(env.disk, TEMPORARY_PATH, has_check_code=True)
        metadata = await _read(env.disk, PATH, has_check_code=False)
        if metadata is not None:
            identity._own(metadata)
            if temporary is not None:
                await identity._remove_temporary()
        elif temporary is not None:
            identity._check(temporary)
            identity._temporary = temporary
            identity.state = RegisterState.CREATE_TEMP_METADATA_FILE_DONE
        return identity

    async def register(self, controllers: Registrar) -> Master:
        """The steps that are left. Raises what the controllers' client raises, and StorageError;
        what is done is not done again.
        """
        try:
            if self.state is RegisterState.INITIAL:
                await self._create_temporary(controllers)
            if self.state is RegisterState.CREATE_TEMP_METADATA_FILE_DONE:
                await self._apply(controllers)
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else StorageError
            raise kind(f"the broker's identity: {error.strerror or error}") from error
        assert self.broker_id is not None
        master = await controllers.register_broker(
            self._cluster, self._group, self.broker_id, self._address
        )
        self.state = RegisterState.REGISTERED
        return master

    async def _create_temporary(self, controllers: Registrar) -> None:
        broker_id = await controllers.next_broker_id(self._cluster, self._group)
        code = f"{self._address};{self._clock.wall_ns() // NS_PER_MS}"
        temporary = BrokerMetadata(self._cluster, self._group, broker_id, code)
        await replace_file(self._disk, TEMPORARY_PATH, temporary.encode())
        self._temporary = temporary
        self.state = RegisterState.CREATE_TEMP_METADATA_FILE_DONE

    async def _apply(self, controllers: Registrar) -> None:
        temporary = self._temporary
        assert temporary is not None
        try:
            await controllers.apply_broker_id(
                self._cluster, self._group, temporary.broker_id, temporary.check_code
            )
        except BrokerIdInvalid:  # another broker was faster
            await self._remove_temporary()
            self.state = RegisterState.INITIAL
            raise
        metadata = BrokerMetadata(self._cluster, self._group, temporary.broker_id)
        await replace_file(self._disk, PATH, metadata.encode())
        self._own(metadata)
        await self._remove_temporary()

    def _own(self, metadata: BrokerMetadata) -> None:
        self._check(metadata)
        self.broker_id = metadata.broker_id
        self.state = RegisterState.CREATE_METADATA_FILE_DONE

    def _check(self, metadata: BrokerMetadata) -> None:
        if (metadata.cluster, metadata.name) != (self._cluster, self._group):
            raise StorageError(
                f"this directory belongs to broker {metadata.name} of cluster {metadata.cluster},"
                f" not to {self._group} of {self._cluster}"
            )

    async def _remove_temporary(self) -> None:
        self._temporary = None
        try:
            await self._disk.remove(TEMPORARY_PATH)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{TEMPORARY_PATH}: {error.strerror or error}") from error
        await self._disk.sync_dir("")


async def _read(disk: Disk, path: str, *, has_check_code: bool) -> BrokerMetadata | None:
    try:
        data = await read_file(disk, path)
    except OSError as error:
        raise BrokerError(f"{path}: {error.strerror or error}") from error
    return None if data is None else decode(data, path, has_check_code=has_check_code)
