"""Every error the harness raises on purpose.

ShalottError
 ├─ UsageError            the user asked for what can't be done: one sentence, exit 254
 │   ├─ MissingCapability a plan asks for a fault that its world can't make
 │   └─ UnreadableHistory a file holds no history, or a malformed one: says where
 ├─ HarnessError          the harness itself failed: exit 255, never the system's failure
 │   ├─ BootFailed        the cluster did not come up
 │   └─ StoreError        a run can't be written or read
 └─ ClientError           what a client's operation met; decides fail or info
     ├─ Definite          it certainly did not happen   -> fail
     │   └─ Unreachable   nothing was sent: there is no connection, a new one is needed
     └─ Indefinite        nobody knows                  -> info
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ShalottError(Exception):
    """Base of all."""


class UsageError(ShalottError): ...


class MissingCapability(UsageError): ...


class UnreadableHistory(UsageError): ...


class HarnessError(ShalottError): ...


class BootFailed(HarnessError): ...


class StoreError(HarnessError): ...


class ClientError(ShalottError): ...


class Definite(ClientError): ...


class Unreachable(Definite): ...


class Indefinite(ClientError):
    """``extra``: what the history is to say of it besides."""

    def __init__(self, sentence: str = "", *, extra: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.extra = extra
