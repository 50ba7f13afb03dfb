"""A manifest refuses entries that can't be met, all in one error."""

from pathlib import Path

import pytest

from shardproof import ManifestError
from shardproof._base.messages import quoted
from shardproof.manifest import ExpectedFile, Manifest


def manifest(*files: ExpectedFile) -> Manifest:
    return Manifest(root=Path("/d"), path=Path("/d/index.json"), format="test", files=files)


def test_every_name_that_is_refused_is_listed() -> None:
    with pytest.raises(ManifestError) as caught:
        manifest(ExpectedFile(name="../a"), ExpectedFile(name="ok"), ExpectedFile(name="/b"))

    assert str(caught.value) == (
        "Could not read the manifest at '/d/index.json': names that are refused (2):\n"
        "  - '../a' (entry 0): it has an empty, '.' or '..' part\n"
        "  - '/b' (entry 2): it is absolute"
    )


def test_impossible_sizes_and_digests_are_listed() -> None:
    with pytest.raises(ManifestError) as caught:
        manifest(
            ExpectedFile(name="a", size=-1),
            ExpectedFile(name="b", size=1, digest="sha256:xyz"),
            ExpectedFile(name="c", size=1),
        )

    assert "entries that can't be met (2):" in str(caught.value)
    assert "'a': size -1" in str(caught.value)
    assert "'b': expected 64 hexadecimal digits" in str(caught.value)


def test_nothing_is_made_of_the_refusals_that_are_not_shown(monkeypatch) -> None:
    """A list of 55 MB can name 1.7 million files that lead out of the directory."""
    names = []
    monkeypatch.setattr(
        "shardproof.manifest.quoted", lambda name: names.append(name) or quoted(name)
    )
    with pytest.raises(ManifestError, match=r"refused \(1000\):") as caught:
        manifest(*(ExpectedFile(name=f"../{n}") for n in range(1000)))

    assert "and 980 more" in str(caught.value)
    assert len(names) == 20
