"""Whatever a server does: the right bytes, or an error and no name; never later than agreed."""

import dataclasses
import hashlib
import logging
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof import FetchError
from shardproof.fetching import FetchResult, HttpSource, Limits, fetch_file
from shardproof.fetching.transfer import _relay
from shardproof.testing.faults import Hub, HubFault, serve_hub
from tests.helpers.kept_parts import beside_parts, parts_in

OLD = random.Random(1).randbytes(40_000)
NEW = random.Random(2).randbytes(36_000)

LIMITS = Limits(
    attempts=4,
    timeout=5,
    deadline=20,
    stall_timeout=0.15,
    min_speed=1000,
    max_backoff=0.02,
    connections=3,
    max_unsized_bytes=2**24,
)
UNHURRIED = dataclasses.replace(LIMITS, stall_timeout=1)
"""For what counts attempts: no pause of a busy machine is taken for a stall."""

STALLS = {fault for fault in HubFault if fault.startswith("stall-")} | {HubFault.DRIP}
"""What is waited for to the end, each time."""

SOON = dataclasses.replace(LIMITS, stall_timeout=0.2, attempts=9)
"""For a stall that happens once: a busy machine that pauses as long takes some of many attempts."""

SOONEST = dataclasses.replace(LIMITS, stall_timeout=0.1, attempts=3)
"""For a stall that stays: one more, by a pause, ends the same way."""

HARMLESS = {HubFault.REDIRECT_TO_OTHER_HOST, HubFault.UNSAFE_FILE_NAME}
"""What a fetch gets over each time."""

OF_RANGES = {fault for fault in HubFault if fault.startswith("range-")} - {HubFault.RANGE_UNASKED}


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub({"a/0.bin": OLD}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path) -> Iterator[None]:
    yield
    assert beside_parts(tmp_path) <= {"0.bin"}
    assert len(parts_in(tmp_path)) <= (not (tmp_path / "0.bin").exists())
    assert not [t for t in threading.enumerate() if t.name.startswith("shardproof-fetch")]


def fetch(
    hub: Hub,
    path: Path,
    wanted: bytes | None = None,
    *,
    change: bytes = b"",
    limits: Limits = LIMITS,
) -> FetchResult:
    """Fetch a file, by the digest of ``wanted``; it changes when the first bytes have come."""

    def on_bytes(n_bytes: int, size: int | None) -> None:
        nonlocal change
        if change:
            hub.put("a/0.bin", change)
            change = b""

    digest = None if wanted is None else sha256(wanted)
    with HttpSource(f"{hub.url}/a") as source:
        return fetch_file(source, "0.bin", path, digest=digest, limits=limits, on_bytes=on_bytes)


@pytest.fixture(params=["fresh", "resumed", "changed", "parallel"])
def mode(request, hub, monkeypatch) -> str:
    """How a fetch goes on before the fault: the file is there, and it began or changes."""
    if request.param in {"resumed", "changed"}:
        hub.fault("a/0.bin", HubFault.RESET_IN_BODY, times=1)
    if request.param == "parallel":
        monkeypatch.setattr(_relay, "_MIN_SPAN", 4096)
        monkeypatch.setattr(_relay, "_AT_FIRST", 3)
        monkeypatch.setattr(_relay, "is_patient", lambda _: False)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(HubFault))
def test_a_fault_that_happens_once_is_recovered_from(fault, mode, hub, tmp_path) -> None:
    wanted = NEW if mode == "changed" else OLD
    hub.fault("a/0.bin", fault, times=1)

    limits = SOON if fault in STALLS else UNHURRIED
    fetched = fetch(
        hub, tmp_path / "0.bin", wanted, change=NEW if mode == "changed" else b"", limits=limits
    )

    assert fetched.path.read_bytes() == wanted
    assert fetched.proven
    assert fetched.digest == sha256(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(HubFault))
@pytest.mark.parametrize(
    "mode",
    ["fresh", "parallel"]
    + [pytest.param(mode, marks=pytest.mark.exhaustive) for mode in ("resumed", "changed")],
    indirect=True,
)
def test_a_fault_that_stays_ends_with_an_error_and_nothing(fault, mode, hub, tmp_path) -> None:
    wanted = NEW if mode == "changed" else OLD
    hub.fault("a/0.bin", fault)

    limits = SOONEST if fault in STALLS else UNHURRIED if fault in HARMLESS else LIMITS
    try:
        fetched = fetch(
            hub, tmp_path / "0.bin", wanted, change=NEW if mode == "changed" else b"", limits=limits
        )
    except FetchError:
        assert not (tmp_path / "0.bin").exists()
        assert fault not in HARMLESS or mode != "fresh"
    else:
        assert fetched.path.read_bytes() == wanted
        assert fault in HARMLESS | OF_RANGES or mode != "fresh"


def test_what_was_resumed_was_not_fetched_twice(hub, tmp_path) -> None:
    hub.fault("a/0.bin", HubFault.TRUNCATED, times=1, at=30_000)

    fetched = fetch(hub, tmp_path / "0.bin", OLD, limits=UNHURRIED)

    _, second = hub.requests_for("a/0.bin", method="GET")
    assert second.headers["range"] == "bytes=30000-39999"
    assert second.headers["if-range"] == f'"{sha256(OLD).removeprefix("sha256:")}"'
    assert fetched.n_bytes == len(OLD)
    assert fetched.n_attempts == 2


def test_the_log_tells_of_attempts_waits_and_the_end(hub, tmp_path, caplog) -> None:
    hub.fault("a/0.bin", HubFault.STALL_IN_BODY)

    with caplog.at_level(logging.INFO, "shardproof.fetching"), pytest.raises(FetchError):
        fetch(hub, tmp_path / "0.bin", limits=Limits(stall_timeout=0.1, max_backoff=0.01))

    texts = [record.getMessage() for record in caplog.records]
    assert re.match(r"Timeout downloading '0.bin' after [0-9.]+s \(attempt 1/3\): ", texts[0])
    assert texts[1].startswith("Retrying in 0.0")
    assert texts[-1] == f"Failed to download '0.bin' after 3 attempts: {tmp_path / '0.bin'}"


def test_a_wait_that_a_server_asks_for_is_kept_up_to_a_bound(hub, tmp_path, caplog) -> None:
    hub.fault("a/0.bin", HubFault.STATUS_503, times=1, retry_after="0")
    hub.fault("a/0.bin", HubFault.RETRY_AFTER_ABSURD, times=1)

    with caplog.at_level(logging.INFO, "shardproof.fetching"):
        fetch(hub, tmp_path / "0.bin", limits=Limits(max_backoff=0.07))

    waits = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Retrying")]
    assert waits == ["Retrying in 0.0s", "Retrying in 0.1s"]


def test_no_wait_goes_beyond_the_deadline(hub, tmp_path) -> None:
    hub.fault("a/0.bin", HubFault.RETRY_AFTER_ABSURD)

    with pytest.raises(FetchError, match="after 1 attempt"):
        fetch(hub, tmp_path / "0.bin", limits=Limits(max_backoff=3600, deadline=5))
