"""Engine: the Docker engine as asyncio code sees it.

The SDK blocks, so its calls run on a small thread pool of their own. A cancelled caller does not
stop its call: ``settle`` waits for the calls that are still out, so that a teardown after Ctrl-C
can't be overtaken by a container that an interrupted boot is still creating.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import docker
import docker.errors
import requests.exceptions

from shalott.cluster.docker.reachable import CONNECT_TIMEOUT_S, explain, reach_socket, unfit
from shalott.core.errors import HarnessError, MissingHere

__all__ = ["CONNECT_TIMEOUT_S", "Engine", "connect", "explain"]

T = TypeVar("T")

CALL_TIMEOUT_S = 120  # image builds are read line by line; nothing else comes near it
THREADS = 12


def connect(timeout_s: int = CALL_TIMEOUT_S) -> docker.APIClient:
    """A client of the engine that DOCKER_HOST or the usual socket names: Docker's or Podman's.

    Raises MissingHere with a sentence that says what to do: there is none, or it can't run nodes.
    """
    try:
        reach_socket()
        api = docker.DockerClient.from_env(version="auto", timeout=timeout_s).api
        obstacle = unfit(api.info())
    except (OSError, docker.errors.DockerException) as error:
        raise MissingHere(explain(error)) from error
    if obstacle is not None:
        api.close()
        raise MissingHere(obstacle)
    return api


class Engine:
    """One connection to the engine and the threads that use it; made at the first call, and again
    after close."""

    def __init__(self) -> None:
        self._api: docker.APIClient | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._calls: dict[Future[Any], None] = {}

    async def call(self, function: Callable[[docker.APIClient], T]) -> T:
        """Run a blocking call. Raises HarnessError when the engine refuses it."""
        if self._api is None or self._threads is None:
            # Blocks for a few milliseconds, once; in exchange no two callers can connect at the
            # same time.
            self._api = connect()
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        future = self._threads.submit(function, self._api)
        self._calls[future] = None
        try:
            return await asyncio.wrap_future(future)
        except docker.errors.APIError as error:
            raise HarnessError(f"docker: {error.explanation or error}") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise HarnessError(f"docker: {error}") from error
        finally:
            if future.done():
                self._calls.pop(future, None)

    async def settle(self, timeout_s: float = 30) -> None:
        """Wait until no call is out, also of those whose callers were cancelled."""
        pending = list(self._calls)
        await asyncio.to_thread(wait, pending, timeout_s)
        self._calls.clear()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()
        self._threads = self._api = None
