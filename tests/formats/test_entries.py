"""One bad entry of a manifest is a finding that says which; all others are looked at and proven."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from shardproof import FindingKind, ManifestError, ShardValidationError, repair, seal, validate
from shardproof._base.messages import quoted
from shardproof.manifest import Contradiction, ExpectedFile, Manifest
from shardproof.testing import Layout, write_layout
from tests.formats.looking import of_golden

BAD = "a\tb"
DIGITS = hashlib.sha256(b"").hexdigest()


class Entry(NamedTuple):
    golden: str
    manifest: str
    name: str
    n_others: int


ENTRIES = [
    Entry("arrow", "state.json", "data-00001-of-00003.arrow", 2),
    Entry("bagit", "manifest-md5.txt", "data/a.bin", 6),
    Entry("digests", "SHA256SUMS", "a.bin", 1),
    Entry("energon", ".nv-meta/.info.json", "train-000000.tar", 3),
    Entry("litdata-optimized", "index.json", "chunk-0-1.bin", 4),
    Entry("mds-hashed", "index.json", "shard.00001.mds", 1),
    Entry("safetensors-sharded", "model.safetensors.index.json", "model-00002-of-00004", 4),
    Entry("wids", "shardindex.json", "train-000001.tar", 2),
]


def found_in(root: Path, level: str = "present") -> list[tuple[str, str]]:
    findings = validate(root, level=level).findings
    return [(each.path.relative_to(root).as_posix(), each.found) for each in findings]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.golden)
def test_a_name_with_a_tab_hides_no_other_file(entry: Entry, tmp_path: Path) -> None:
    root = of_golden(entry.golden, tmp_path)
    path = root / entry.manifest
    is_json = path.suffix == ".json"
    bad = json.dumps(BAD)[1:-1] if is_json else BAD
    path.write_text(path.read_text().replace(entry.name, bad, 1))
    report = validate(root, level="valid")
    [finding] = [each for each in report.findings if "control character" in each.found][:1]
    assert (finding.kind, finding.path, finding.index) == (FindingKind.STRUCTURE, path, None)
    assert r"'a\tb" in finding.found
    assert finding.found in str(report)
    assert (report.ok, report.exit_code, report.n_files) == (False, 1, entry.n_others)
    if report.format != "digests":  # of which a seal takes any files
        with pytest.raises(ShardValidationError):
            seal(root, algorithm="sha512")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode())
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a", "b", "c")]
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("no line of a list", "line 4: expected a digest and a name, found 'no line of a list'"),
        (f"{DIGITS}", f"line 4: expected a digest and a name, found '{DIGITS}'"),
        (f"{DIGITS}  ../x", "'../x' (entry 3): it has an empty, '.' or '..' part"),
        (f"{DIGITS}  /etc/passwd", "'/etc/passwd' (entry 3): it is absolute"),
    ],
)
def test_a_line_hides_no_other_line(root: Path, line: str, found: str) -> None:
    with (root / "SHA256SUMS").open("a") as file:
        file.write(f"{line}\n")
    assert found_in(root) == [("SHA256SUMS", found)]
    (root / "b").write_bytes(b"x")
    assert {name for name, _ in found_in(root, "valid")} == {"SHA256SUMS", "b"}


def test_the_same_of_a_seal_beside_a_manifest(root: Path) -> None:
    write_layout(Layout(n_shards=2), root / "shards")
    seal(root / "shards")
    with (root / "shards/SHA256SUMS").open("a") as file:
        file.write(f"{DIGITS}  ../secret\nxyz\n")
    report = validate(root / "shards", level="valid")
    assert {each.path.name for each in report.findings} == {"SHA256SUMS"}
    assert (len(report.findings), report.n_proven) == (2, report.n_files)


@pytest.mark.parametrize("pair", [("a", "A"), ("é", "e\u0301"), ("b", "b")])
def test_of_twins_both_are_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    files = [ExpectedFile(name=name) for name in (*pair, "other")]
    fields = {"root": tmp_path, "path": tmp_path / "index.json", "format": "test"}
    fields["contradictions"] = lambda: [Contradiction(file.name, "", "") for file in files]
    manifest = Manifest.without_refused(Manifest, files=files, **fields)
    assert [file.name for file in manifest.files] == ["other"]
    [(name, _, found)] = manifest.damaged
    assert name == "index.json"
    assert "(entry 1): it is listed " in found
    # Whoever acts on the path of a finding is led nowhere.
    assert [each.name for each in manifest.contradictions()] == ["other"]


def test_an_impossible_digest_and_a_name_are_both_findings(tmp_path: Path) -> None:
    root = of_golden("wids", tmp_path)
    index = json.loads((root / "shardindex.json").read_text())
    index["shardlist"][0]["md5sum"] = "xyz"
    index["shardlist"][1]["url"] = "../train-000001.tar"
    (root / "shardindex.json").write_text(json.dumps(index))
    found = [text.partition(":")[0] for _, text in found_in(root)]
    assert found == ["'../train-000001.tar' (entry 1)", "'train-000000.tar'"]
    assert validate(root).n_files == 1


def test_of_very_many_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    shards = [{"filename": f"../{n}", "chunk_bytes": 1, "chunk_size": 1} for n in range(1500)]
    shards.append({"filename": "ok", "chunk_bytes": 1, "chunk_size": 1})
    (tmp_path / "index.json").write_text(json.dumps({"chunks": shards, "config": {}}))
    found = found_in(tmp_path)
    assert len(found) == 52  # and the one that is missing
    assert ("index.json", "1450 more") in found


def test_where_all_entries_or_very_many_are_refused_the_manifest_is(root: Path) -> None:
    with (root / "SHA256SUMS").open("a") as file:
        file.write("x\n" * 1001)
    with pytest.raises(ManifestError, match="line 4"):
        validate(root)
    (root / "SHA256SUMS").write_text(f"{DIGITS}  ../x\n{DIGITS}  /y\n")
    with pytest.raises(ManifestError, match=r"names that are refused \(2\)"):
        validate(root)


def test_a_repair_leaves_the_entry_and_mends_the_others(tmp_path: Path) -> None:
    source = write_layout(Layout(n_shards=3), tmp_path / "source")
    root = write_layout(Layout(n_shards=3, missing=[1]), tmp_path / "shards")
    shards = json.loads((root / "shards.json").read_text())
    shards[2]["name"] = "../secret"
    (root / "shards.json").write_text(json.dumps(shards))
    before = {*os.listdir(tmp_path)}
    done = repair(root, source.as_uri(), level="present")
    assert (done.repaired, done.ok) == (("acts000001.bin",), False)
    assert {*os.listdir(tmp_path)} == before


def told_and_not_sealed(root: Path, manifest: str, name: str) -> None:
    report = validate(root, level="valid")
    assert report.exit_code == 1
    found = [each for each in report.findings if each.path == root / manifest]
    assert any(name in each.found and "digits" in each.found for each in found), report
    with pytest.raises((ShardValidationError, ManifestError)):
        seal(root, algorithm="sha512")


@pytest.mark.parametrize("digits", ["abcd", "", "zz" * 20, "0" * 39])
@pytest.mark.parametrize("others", [[], ["xxh64"]], ids=["alone", "beside a whole one"])
def test_a_digest_of_mds_that_can_be_none_is_not_none_stated(
    tmp_path: Path, digits: str, others: list[str]
) -> None:
    root = of_golden("mds-hashed", tmp_path)
    index = json.loads((root / "index.json").read_text())
    about = index["shards"][1]["raw_data"]
    kept = {name: about["hashes"][name] for name in others}
    about["hashes"] = kept | {"sha1": digits}
    (root / "index.json").write_text(json.dumps(index))
    told_and_not_sealed(root, "index.json", about["basename"])


@pytest.mark.parametrize("digits", ["abcd", "0" * 63, "0" * 65])
def test_a_digest_of_a_bag_that_can_be_none_is_not_none_stated(tmp_path: Path, digits: str) -> None:
    root = of_golden("bagit", tmp_path)
    for path in [*root.glob("tagmanifest*"), root / "manifest-md5.txt"]:
        path.unlink()
    path = root / "manifest-sha256.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([digits + lines[0][64:], *lines[1:], "xyz"]))
    told_and_not_sealed(root, path.name, "data/a.bin")
    expected = "line 3: expected a digest (64 digits) and a path, found 'xyz'"
    assert (path.name, expected) in found_in(root)


@pytest.mark.parametrize("field", ["sha256", "md5"])
@pytest.mark.parametrize("digits", ["abcd", "z" * 64, "0f" * 31, "dGVzdA" * 5, "0f" * 33])
def test_a_digest_of_croissant_that_can_be_none_is_not_none_stated(
    tmp_path: Path, field: str, digits: str
) -> None:
    about = {"@type": "cr:FileObject", "contentUrl": "a.csv", field: digits}
    other = {"@type": "cr:FileObject", "contentUrl": "b.csv"}
    context = {"cr": "http://mlcommons.org/croissant/"}
    text = json.dumps({"@context": context, "distribution": [about, other]})
    (tmp_path / "croissant.json").write_text(text)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"1,2\n")
    told_and_not_sealed(tmp_path, "croissant.json", "a.csv")


def test_a_digest_of_the_hub_that_can_be_none_is_not_none_stated(tmp_path: Path) -> None:
    root = of_golden("hf-local-dir", tmp_path)
    [path] = [*root.glob(".cache/huggingface/trees/*.json")]
    tree = json.loads(path.read_text())
    next(iter(tree["files"].values()))["blob_id"] = "abcd"
    path.write_text(json.dumps(tree))
    report = validate(root, level="valid")
    assert [each.path for each in report.findings] == [path]


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
