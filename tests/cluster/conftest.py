"""What each participant saw of a fault, and after how many seconds: rows of a table."""

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def row() -> Callable[..., None]:
    """Take down what a participant saw; ``CLUSTER_ROWS`` is the file (`tests.cluster.table`)."""

    def row(engine: str, fault: str, participant: str, saw: str, seconds: float) -> None:
        saw = saw.replace(socket.gethostname(), "node1")
        found: dict[str, Any] = {"engine": engine, "fault": fault, "participant": participant}
        if name := os.environ.get("CLUSTER_ROWS"):
            with open(name, "a") as file:
                file.write(json.dumps(found | {"saw": saw, "seconds": seconds}) + "\n")

    return row
