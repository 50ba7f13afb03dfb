"""Every block of a page runs as shown, in the order shown, and prints what the page says.

`SCENES` has, for each page, what its machine has. What is printed now is written into all pages by

    pytest tests/docs tests/test_have_pages.py -m "" --update-pages
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof import FindingKind, testing
from shardproof.testing.faults import Hub
from tests.goldens import golden
from tests.helpers import ROOT
from tests.helpers.pages import BLOCK, PAGES, Scene, as_shown

SAEV = "/scratch/user/saev/shards/abc12345"


def saev(scene: Scene, path: str = SAEV, **keywords: object) -> Path:
    """Put a directory of activations there."""
    return testing.write_layout(testing.Layout(**keywords), scene.place(path))


def stub(scene: Scene, name: str, code: str) -> None:
    """Put a command there, in place of what clusters have."""
    scene.place(f"bin/{name}").write_text(f"#!/bin/bash\n{code}\n")
    scene.place(f"bin/{name}").chmod(0o755)


def slurm(scene: Scene) -> None:
    stub(scene, "srun", 'while [[ $1 == --* ]]; do shift; done; exec "$@"')
    stub(scene, "sbatch", 'echo "Submitted batch job 4711"')


def readme(scene: Scene, _hub: Hub) -> None:
    saev(scene, n_shards=24, missing=[3, 7], empty=[12])


def repair(scene: Scene, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub")
    slurm(scene)
    path = saev(scene, "/data/data", n_shards=24)
    for file in path.iterdir():
        hub.put(file.name, file.read_bytes(), repo="org/name")
    (path / "acts000003.bin").unlink()
    scene.env.update(HF_ENDPOINT=hub.url)


def prepared(scene: Scene, command: str) -> None:
    assert scene.run(command).returncode == 0


def command_line(scene: Scene, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub")
    saev(scene, n_shards=24)
    slurm(scene)
    prepared(scene, f"shardproof seal {SAEV}")
    (scene.root / "data/train.py").write_text("")
    tokens = b"tokens"
    scene.env.update(
        BASE_URL=hub.put("tokens.npy", tokens).rpartition("/")[0],
        SHA256=hashlib.sha256(tokens).hexdigest(),
        SHARDS=str(scene.place(SAEV)),
        HF_ENDPOINT=hub.url,
        HF_HUB_DISABLE_PROGRESS_BARS="1",
    )
    hub.put("train/0.parquet", tokens, repo="org/name")
    layout = testing.Layout(n_shards=8, format="receipts", missing=[2])
    plan = testing.write_layout(layout, scene.root / "project" / layout.folder)
    scene.env["PLAN_DIR"] = str(plan)


def buckets(scene: Scene, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub")
    path = saev(scene, "/data/train", n_shards=3)
    prepared(scene, "shardproof seal train")
    for file in path.iterdir():
        hub.put(f"train/{file.name}", file.read_bytes(), repo="org/shards")
        cut = file.read_bytes()[:100] if file.name == "acts000001.bin" else file.read_bytes()
        if file.name != "acts000002.bin":
            hub.put(f"old/{file.name}", cut, repo="org/shards")
    scene.env.update(HF_ENDPOINT=hub.url)


def job_array(scene: Scene, _hub: Hub) -> None:
    slurm(scene)
    stub(scene, "sbatch", 'echo "Submitted batch job 4711"; exec bash "$@"')


def checkpoints(scene: Scene, _hub: Hub) -> None:
    slurm(scene)
    scene.env.update(RUN="run")
    (scene.root / "data/train.py").write_text("")


ELSEWHERE = {
    **dict.fromkeys(["accelerator.md", "benchmarks.md"], "they measure, for minutes"),
    **dict.fromkeys(["frameworks.md", "training.md"], "tests/interop: they need torch"),
    "peers.md": "tests/peers: it needs other loaders",
    **dict.fromkeys(
        ["checkpoint-kit.md", "fake-file-system.md", "loopback-hub.md", "receipts-kit.md"],
        "tests/test_docs.py: they hold test files",
    ),
    **dict.fromkeys(["receipts.md", "staging.md", "testing-kit.md"], "tests/test_docs.py"),
    **dict.fromkeys(["damage.md", "faults.md"], "tests of code that only stands for yours"),
    **dict.fromkeys(["datasets.md", "token-shards.md"], "tests/datasets; data sets of the Hub"),
}
"""Pages whose blocks other tests run, or nobody can."""


def hub_of_rows(scene: Scene, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub")
    for file in golden("parquet-plain").path.iterdir():
        hub.put(f"data/{file.name}", file.read_bytes(), repo="org/rows", lfs=True)
    scene.env.update(HF_ENDPOINT=hub.url, HF_HUB_DISABLE_XET="1")


def nothing(_scene: Scene, _hub: Hub) -> None:
    """The page makes what it needs."""


def failures(scene: Scene, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub")
    hub.put("0.bin", b"0")
    hub.put("cut.bin", bytes(1000))
    hub.fault("cut.bin", "truncated")
    scene.here["https://data.example.org"] = hub.url
    scene.env.update(HF_ENDPOINT=hub.url)


SCENES: dict[str, Callable[[Scene, Hub], object]] = {
    "README.md": readme,
    "buckets.md": buckets,
    "checkpoints.md": checkpoints,
    "command-line.md": command_line,
    "distributed.md": nothing,
    "engines.md": nothing,
    "examples.md": nothing,
    "forecast.md": nothing,
    "job-array.md": job_array,
    "failures.md": failures,
    "index.md": nothing,
    "loaders.md": nothing,
    "prefetch.md": nothing,
    "pytest-plugin.md": nothing,
    "repair.md": repair,
    "reports.md": nothing,
    "saev-format.md": nothing,
    "seal.md": nothing,
    **{
        f"tutorials/{name}.md": nothing
        for name in ("checkpoints", "loader", "prepare", "slurm", "train")
    },
    "tutorials/repair.md": hub_of_rows,
    "validate.md": nothing,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_each_block_prints_what_the_page_shows(name, scene, shard_hub, pytestconfig) -> None:
    SCENES[name](scene, shard_hub)
    page = ROOT / name if name == "README.md" else ROOT / "docs" / name
    as_shown(page, scene, pytestconfig)


def test_no_page_has_blocks_that_nobody_runs() -> None:
    """But those that say why, in a comment before them."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    idle = {
        name
        for name in pages - SCENES.keys() - ELSEWHERE.keys()
        if not name.startswith("have/") and _runs((ROOT / "docs" / name).read_text())
    }
    assert not idle
    assert not ELSEWHERE.keys() - pages


def _runs(text: str) -> bool:
    assert not re.search(r"(?m)^[ \t]+```", text), "an indented block, which would not be run"
    blocks = [block for block in BLOCK.finditer(text) if not block["skip"]]
    return any(block["kind"] in {"console", "python", "sh"} for block in blocks)


def test_the_guide_to_failures_has_each_error_and_each_finding() -> None:
    guide = (ROOT / "docs/failures.md").read_text()
    named = {*re.findall(r"\w+Error\b", guide)}
    assert {*shardproof.errors.__all__} - named == {"ShardproofError", "SourceErrorKind"}
    assert {kind for kind in FindingKind if f"\n{kind.heading} (" not in guide} == set()
