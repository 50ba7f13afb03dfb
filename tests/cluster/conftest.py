"""What each participant saw of a fault, and after how many seconds: lines of JSON."""

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def row() -> Callable[..., None]:
    """Take down what somebody saw, in the file ``SHARDPROOF_FAULTS`` (`tests.cluster.table`)."""

    def row(engine: str, fault: str, who: str, saw: str, seconds: float) -> None:
        saw = saw.replace(socket.gethostname(), "node1")
        found: dict[str, Any] = {"engine": engine, "fault": fault, "who": who, "saw": saw}
        if name := os.environ.get("SHARDPROOF_FAULTS"):
            with open(name, "a") as file:
                file.write(json.dumps(found | {"seconds": seconds}) + "\n")

    return row
