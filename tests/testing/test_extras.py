"""What is not installed names what to install."""

import subprocess
import sys

import pytest

from shardproof._base.imports import extra

IMPORT = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
getattr(__import__(sys.argv[2], fromlist=["*"]), sys.argv[3])
"""
NEEDS = [
    ("hypothesis", "shardproof.testing.strategies", "layouts"),
    ("hypothesis", "shardproof.testing.stateful", "ShardsDirMachine"),
    ("hypothesis", "shardproof.testing.contracts", "ValidatorContract"),
    ("pytest", "shardproof.testing.contracts", "ShardLoaderContract"),
    ("pyfakefs", "shardproof.testing.faults.fake", "fake_shards_dir"),
]


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True)
    return done.stderr.strip()


@pytest.mark.parametrize(("package", "module", "name"), NEEDS)
def test_a_missing_package_is_told_with_its_extra(package: str, module: str, name: str) -> None:
    last = run(IMPORT, package, module, name).splitlines()[-1]
    assert last == (
        f"ModuleNotFoundError: No module named {package!r}: pip install 'shardproof[testing]'"
    )


@pytest.mark.parametrize(
    "use",
    [
        "from shardproof.testing.faults import FileSystemFaults, damage, serve_hub",
        "from shardproof.testing import time_limit",
        "import shardproof.testing.faults as f; f.DamageKind; assert 'http.server' not in l",
    ],
)
def test_others_need_none(use: str) -> None:
    blocked = "sys.modules.update(dict.fromkeys(['hypothesis', 'pyfakefs', 'pytest']))"
    assert not run(f"import sys; l = sys.modules; {blocked}; {use}")


def test_a_package_of_somebody_else_is_not_ours() -> None:
    with pytest.raises(ModuleNotFoundError, match="named 'another'"), extra():
        __import__("another")
