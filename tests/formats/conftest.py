"""A loopback Hub, and the client that fills caches and folders from it."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from shardproof.testing.faults import Hub
from tests.helpers.hub_client import hub_client


@pytest.fixture
def hub(shard_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return shard_hub


@pytest.fixture(scope="module")
def hf() -> Iterator[ModuleType]:
    with hub_client() as client:
        yield client
