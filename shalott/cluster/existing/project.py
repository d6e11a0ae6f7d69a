"""The containers of a compose project, as its labels say: those of docker compose 1 and 2, and of
podman-compose."""

from __future__ import annotations

import docker

from shalott.cluster.docker.engine import connect
from shalott.cluster.existing.inventory import ContainerOfProject

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
NUMBER = "com.docker.compose.container-number"
ONE_OFF = "com.docker.compose.oneoff"


def list_project(project: str) -> list[ContainerOfProject]:
    """Those that run and those that don't. Raises UsageError: no engine answers."""
    api = connect()
    try:
        return containers_of(api, project)
    finally:
        api.close()


def containers_of(api: docker.APIClient, project: str) -> list[ContainerOfProject]:
    """Blocks."""
    found = api.containers(all=True, filters={"label": f"{PROJECT}={project}"})
    return [
        ContainerOfProject(
            name=str(each["Names"][0]).lstrip("/"),
            service=str(each["Labels"].get(SERVICE, "")),
            number=int(each["Labels"].get(NUMBER, "1")),
        )
        for each in found
        if each["Labels"].get(ONE_OFF, "False").lower() != "true"
    ]
