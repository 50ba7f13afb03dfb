"""The exceptions: their places in the tree, their texts, their way through pickle."""

import copy
import errno
import pickle
from pathlib import Path

import pytest

import shardproof
from shardproof import (
    FetchError,
    FetchTimeoutError,
    Finding,
    FindingKind,
    ManifestError,
    ManifestNotFoundError,
    ManifestPermissionError,
    Report,
    SealError,
    ShardproofError,
    ShardReadError,
    ShardValidationError,
    UnsyncedError,
)

REPORT = Report(
    Path("/d"), "saev", "present", 1, (Finding(FindingKind.MISSING, Path("/d/x"), "a", "b", 2),)
)


def test_each_is_what_the_operating_system_would_raise() -> None:
    assert issubclass(ManifestNotFoundError, FileNotFoundError)
    assert issubclass(ManifestPermissionError, PermissionError)
    assert issubclass(ShardValidationError, FileNotFoundError)
    assert issubclass(FetchError, RuntimeError)
    assert issubclass(FetchTimeoutError, TimeoutError)


@pytest.mark.parametrize(
    ("kind", "number"),
    [(ManifestNotFoundError, errno.ENOENT), (ManifestPermissionError, errno.EACCES)],
)
def test_they_have_what_errors_of_the_operating_system_have(kind, number: int) -> None:
    error = kind("why", path="/d")
    for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (one.errno, one.filename, str(one)) == (number, "/d", str(error))
    assert str(error) == "Could not read the manifest at '/d': why"


def test_every_public_error_is_in_the_tree() -> None:
    errors = [getattr(shardproof, name) for name in shardproof.__all__ if name.endswith("Error")]

    assert len(errors) == 19
    assert all(issubclass(error, ShardproofError) for error in errors)


@pytest.mark.parametrize(
    "error",
    [
        ManifestError("bad", path="/d/shards.json", line=3, field="$[0].name"),
        ManifestNotFoundError("gone", path="/d"),
        ManifestPermissionError("denied", path="/d"),
        ShardValidationError(REPORT),
        FetchError("gone", url="https://x/y", path="/d/y", causes=["404"]),
        FetchTimeoutError("late", url="https://x/y", path="/d/y", causes=["slow"]),
        ShardReadError("gone", path="/d/x", offset=8, expected=4, found=2, errno=2),
        SealError("changed", path="/d/x"),
        UnsyncedError("/d/x", errno=5),
    ],
)
def test_an_error_crosses_processes_whole(error: ShardproofError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__
        assert getattr(twin, "errno", None) == getattr(error, "errno", None)


def test_the_text_says_where() -> None:
    error = ManifestError("bad", path="/d/shards.json", line=3, field="$[0].name")

    assert str(error) == (
        "Could not read the manifest at '/d/shards.json', line 3, field $[0].name: bad"
    )
    late = FetchTimeoutError("late", url="https://h/a", path="/d/a", causes=["x", "y"])
    assert str(late) == (
        "Could not fetch 'https://h/a' to '/d/a': late\n  - attempt 1: x\n  - attempt 2: y"
    )


def test_a_read_error_may_be_made_of_a_text_alone() -> None:
    """As torch does with what a worker process raised."""
    assert str(ShardReadError("Caught ShardReadError in worker 0")).startswith("Caught")
