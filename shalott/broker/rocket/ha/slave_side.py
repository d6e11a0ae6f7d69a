"""SlaveSide: what a slave does: it finds out where its log and a new master's part, and follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, StorageError
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.commitlog.replica import HaClientInfo
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.ha.agreement import AgreementRules, find_agreement
from shalott.broker.rocket.ha.client import ClientRules, HaClient

log = logging.getLogger("shalott.broker.ha")


class SlaveSide:
    """``agreed`` is awaited with the offset up to which this log is the master's; ``followed`` is
    called when the log begins to follow. ``fail`` ends the node."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        store: Store,
        book: AddressBook,
        *,
        agreed: Callable[[int], Awaitable[None]],
        followed: Callable[[], None],
        fail: Callable[[str], None],
    ) -> None:
        self._env = env
        self._config = config
        self._store = store
        self._book = book
        self._agreed = agreed
        self._followed = followed
        self._fail = fail
        self._master = ""
        self._client: HaClient | None = None
        self._agreeing: asyncio.Task[None] | None = None

    def start(self, master: str, *, agreed: bool) -> None:
        """Follow that node. ``agreed``: this log is known to be a part of its."""
        self._master = master
        if agreed:
            self._start_client()
        else:
            self._agreeing = asyncio.create_task(self._agree(), name="HA agreement")

    async def stop(self) -> None:
        if self._agreeing is not None:
            self._agreeing.cancel()
            await asyncio.gather(self._agreeing, return_exceptions=True)
            self._agreeing = None
        if self._client is not None:
            await self._client.stop()
            self._client = None

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.connected

    def status(self) -> HaClientInfo | None:
        """haClientRuntimeInfo of GET_BROKER_HA_STATUS."""
        return None if self._client is None else self._client.status(self._address())

    async def _agree(self) -> None:
        """Follow a master that is another one than before."""
        rules = agreement_rules(self._config)
        while True:
            try:
                await self._agreed(await find_agreement(self._store.log, self._dial, rules))
                break
            except StorageError as error:
                self._fail(f"the log can't be made to agree with the master's: {error}")
                return
            except (OSError, BrokerError, TimeoutError) as error:
                log.info("no agreement with %s yet: %s", self._master, error)
            await pause_ms(self._config.ha.reconnect_interval_ms)
        self._start_client()

    def _start_client(self) -> None:
        rules = client_rules(self._env, self._config)
        self._client = HaClient(self._env, self._store, rules, self._dial, self._fail)
        self._client.start()
        self._followed()

    def _address(self) -> str:
        return self._book.advertised(self._master, "ha")

    def _dial(self) -> tuple[str, int]:
        return self._book.dial(self._address())


def client_rules(env: Env, config: RocketConfig) -> ClientRules:
    """A slave's."""
    return ClientRules(
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        reconnect_interval_ms=config.ha.reconnect_interval_ms,
        ignores_heartbeats=env.has_bug("KB-RKT-02"),
    )


def agreement_rules(config: RocketConfig) -> AgreementRules:
    """Of a slave that looks for where its log and its master's part."""
    return AgreementRules(
        segment_bytes=config.store.segment_bytes,
        connect_ms=config.ha.reconnect_interval_ms,
        silence_ms=config.ha.housekeeping_interval_ms,
    )
