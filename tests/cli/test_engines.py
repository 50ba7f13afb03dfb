"""`--dask` and `--mpi`: what is said where they can't be had; tests/cluster uses them."""

import sys

import pytest

from tests.helpers.commands import run


@pytest.mark.parametrize("command", ["validate", "seal", "repair --from nowhere"])
@pytest.mark.parametrize(
    ("option", "module", "package"),
    [("--dask tcp://node1:8786", "distributed", "distributed"), ("--mpi", "mpi4py", "mpi4py")],
)
def test_a_package_that_is_not_there(
    monkeypatch, make_shards_dir, command: str, option: str, module: str, package: str
) -> None:
    for name in (module, f"{module}.futures"):
        monkeypatch.setitem(sys.modules, name, None)
    done = run(*command.split(), *option.split(), make_shards_dir(1))
    assert done.exit_code == 2
    problem = f"{option.partition(' ')[0]}: it needs the package {package}: ModuleNotFoundError"
    assert done.stderr.strip().splitlines()[-1].startswith(f"Error: {problem}")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--dask", "tcp://x:1", "--mpi"], "expected --dask or --mpi, found both"),
        (["--dask"], "requires an argument"),
        (["--dask", ""], "--dask: expected an address: is a variable not set?"),
    ],
)
def test_wrong_usage(make_shards_dir, options: list[str], problem: str) -> None:
    done = run("validate", make_shards_dir(1), *options)
    assert (done.exit_code, problem in done.stderr) == (2, True)
