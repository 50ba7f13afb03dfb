"""Who may import whom, held as data; what an import costs; what is public."""

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import shardproof
from tests.helpers import ROOT

SOURCE = Path(shardproof.__file__).parent

PROMISE = {"manifest", "report"}
LOOK = {"checks"} | PROMISE

MAY_IMPORT = {
    "errors": {"_base"},
    "_base": set(),
    "manifest": {"_base"},
    "report": {"_base"},
    "probes": {"_base", "manifest"},
    "checks": {"_base", "probes"} | PROMISE,
    "saev": {"_base"} | LOOK,
    "receipts": {"_base", "distributed"} | LOOK,
    "checkpoint": {"_base", "distributed"} | LOOK,
    "fetching": {"_base"} | LOOK,
    "remote": {"_base", "fetching"},
    "formats": {"_base", "checkpoint", "probes", "receipts", "remote", "saev"} | PROMISE,
    "loaders": {"_base", "distributed", "saev"} | LOOK,
    "datasets": {"_base", "fetching", "probes"} | LOOK,
    "staging": {"_base", "distributed", "fetching", "formats", "remote"} | LOOK,
    "distributed": {"", "_base", "validation"} | LOOK,
    "promises": {"_base", "fetching", "formats", "probes"} | LOOK,
    "validation": {"_base", "formats", "promises", "remote"} | LOOK,
    "sealing": {"_base", "fetching", "formats", "probes", "remote"} | LOOK,
    "repairing": {"_base", "fetching", "formats", "promises"} | LOOK,
    "forecasting": {"_base", "formats"} | PROMISE,
    "rendering": {"_base", "formats", "promises"} | LOOK - {"checks"},
    "cli": {
        *("", "_base", "checkpoint", "fetching", "forecasting", "formats", "receipts", "remote"),
        *("rendering", "repairing", "sealing", "staging", "testing", "validation"),
    }
    | LOOK,
    "__main__": {"cli"},
    "": {
        *("_base", "checkpoint", "datasets", "fetching", "loaders", "receipts", "report", "saev"),
        *("distributed", "forecasting", "formats", "repairing", "sealing", "staging", "testing"),
        *("validation",),
    },  # the public names, when asked for
    "pytest_plugin": {"", "_base", "formats", "testing"},
    "testing": set(),
}
"""Of which rooms a room may import the doors; everybody may import `errors`."""

INSIDE = {
    "checkpoint": ("_format", "storage", "_torch", "read", "save"),
    "datasets": ("rows", "tokens"),
    "fetching": ("sources", "transfer", "cache"),
    "loaders": ("order", "io"),
    "testing": ("samples", "faults", "strategies", "stateful", "contracts"),
}
"""Rooms in rooms: each may import those before it, and what lies beside them may import all."""

DOORS = {
    *("_base", "cli", "distributed.calls", "formats.signs", "probes", "testing.faults"),
    "testing.samples",
}
"""What is in these is a door."""

FOR_ALL = {"_base.imports"}
"""What doors are made of."""

MAY = {"": {"testing.stateful"}, "checkpoint": {"testing.samples.checkpoint._content"}}
"""Who may import what nobody else may: of the kit one takes `validate` to judge by default, and one
has the library write the checkpoints that it breaks."""

THIRD_PARTY = {
    "": {"_shardproof_entries"},  # beside the package, which is none on Windows
    "_base.arguments": {"beartype"},
    "_base.digest": {"blake3", "xxhash"},
    "_base.holds": {"msgspec"},
    "_base.json": {"msgspec"},
    "_base.progress": {"rich"},
    "_base.yaml": {"yaml"},
    "checkpoint": {"msgspec", "numpy"},
    "checkpoint._torch": {"numpy", "torch"},
    "checkpoint.read._outs": {"ml_dtypes", "numpy"},
    "checkpoint.storage._fsspec_storage": {"fsspec"},
    "checks": {"msgspec"},
    "cli": {"click", "rich"},
    "cli.checkpoint": {"click", "msgspec"},
    "cli.engines": {"click", "distributed", "mpi4py"},
    "distributed": {"msgspec"},
    "distributed._groups": {"mpi4py"},
    "datasets.rows": {"msgspec", "pyarrow"},
    "datasets.rows._rows": {"datasets", "msgspec", "pyarrow"},
    "datasets.tokens": {"msgspec", "numpy"},
    "formats": {"msgspec"},
    "formats.lists.model_signing": {"cryptography", "msgspec"},
    "fetching.cache": {"msgspec"},
    "fetching.sources": {"msgspec"},
    "fetching.sources._http": {"httpcore"},
    "fetching.sources._fsspec": {"fsspec"},
    "fetching.sources._hub": {"huggingface_hub", "msgspec"},
    "fetching.sources._client": {"httpcore", "httpx"},
    "fetching.sources._network": {"httpcore"},
    "fetching.transfer": {"msgspec"},
    "fetching.transfer._partial_file": {"msgspec", "xxhash"},
    "loaders": {"msgspec", "numpy"},
    "loaders._cuda": {"numpy", "torch"},
    "loaders._loader": {"msgspec", "torch"},  # the second for type checkers
    "loaders._torch": {"numpy", "torch"},
    "loaders.io._open_shards": {"numpy", "tenacity"},
    "loaders.io._row_source": {"numpy", "typing_extensions"},  # the second for type checkers
    "manifest": {"msgspec"},
    "probes": {"msgspec"},
    "pytest_plugin": {"pytest"},
    "receipts": {"msgspec"},
    "receipts._pins": {"huggingface_hub", "msgspec"},
    "rendering": {"msgspec", "rich"},
    "repairing": {"msgspec"},
    "saev": {"msgspec"},
    "staging": {"msgspec"},
    "testing._hypothesis": {"hypothesis"},
    "testing.contracts": {"hypothesis", "pytest"},
    "testing.faults.fake": {"pyfakefs"},
    "testing.samples.checkpoint": {"numpy"},
    "testing.stateful": {"hypothesis"},
    "testing.strategies": {"hypothesis"},
}


@functools.cache
def modules() -> list[str]:
    names = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(name.parts).removesuffix("__init__").removesuffix(".") for name in names)


def path_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    package = path / "__init__.py"  # a folder without one is what an older checkout has left
    return package if package.exists() else path.with_suffix(".py")


@pytest.fixture(autouse=True, scope="module")
def _trees_go() -> Iterator[None]:
    """Give half a million nodes back: each look for garbage goes through all that there are."""
    yield
    tree_of.cache_clear()


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text())


@functools.cache
def stub_of(module: str) -> ast.Module | None:
    """What a type checker is told of a package whose names are imported when they are asked for."""
    path = path_of(module).with_suffix(".pyi")
    return ast.parse(path.read_text()) if path.exists() else None


@functools.cache
def imports(module: str) -> set[str]:
    found = set()
    stub = stub_of(module)
    for node in [*ast.walk(tree_of(module)), *(ast.walk(stub) if stub else ())]:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in submodules if name.removeprefix("shardproof.") in modules()}
            found |= ours or {node.module}
    return found


def ours(names: set[str]) -> set[str]:
    return {
        name.removeprefix("shardproof").removeprefix(".")
        for name in names
        if name.split(".")[0] == "shardproof"
    }


def of_each(names: Iterable[str]) -> Callable[[Callable[[str], None]], Callable[[], None]]:
    """Make one test of a test of each module: 1800 that take a millisecond cost ten times that."""

    def decorated(test: Callable[[str], None]) -> Callable[[], None]:
        def run() -> None:
            failed = {}
            for name in names:
                try:
                    test(name)
                except AssertionError as error:
                    failed[name] = str(error)
            assert failed == {}

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorated


@pytest.mark.slow
@of_each(modules())
def test_a_module_imports_only_what_the_table_allows(module: str) -> None:
    for other in ours(imports(module)) - {"errors"} - FOR_ALL:
        assert module in MAY.get(other, ()) or may_import(module, other), other


def may_import(module: str, other: str) -> bool:
    if room_of(module) != room_of(other):
        rooms = room_of(module), room_of(other)
        return rooms[1] in MAY_IMPORT[rooms[0]] and is_door(other)
    order = INSIDE.get(room_of(module), ())
    here, there = inner_room_of(module), inner_room_of(other)
    return not here or here == there or (there in order and order.index(there) < order.index(here))


def room_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def inner_room_of(module: str) -> str:
    """The room of a room that a module is in; nothing if it lies beside them."""
    inner = module.split(".")[1:2]
    return inner[0] if inner and inner[0] in INSIDE.get(room_of(module), ()) else ""


def is_door(module: str) -> bool:
    inner = room_of(module), inner_room_of(module)
    return (
        module in {room_of(module), ".".join(inner)}
        or module in DOORS
        or module.rpartition(".")[0] in DOORS
    )


@of_each([m for m in modules() if m.count(".") == 2 and room_of(m) == "formats"])
def test_no_format_knows_another(module: str) -> None:
    """What two of a room share is a private module of that room, or lies beside the rooms."""
    room = module.rpartition(".")[0]
    for other in ours(imports(module)):
        parent, _, name = other.rpartition(".")
        is_shared = parent == room and name.startswith("_")
        assert room_of(other) != "formats" or parent == "formats" or is_shared, other


@of_each(modules())
def test_a_module_imports_only_its_third_parties(module: str) -> None:
    names = {name.split(".")[0] for name in imports(module)} - {"shardproof"}
    third_party = names - sys.stdlib_module_names
    assert third_party <= next(
        (THIRD_PARTY[at] for at in above(module) if at in THIRD_PARTY), set()
    )


def above(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def test_no_two_modules_import_each_other_in_a_circle() -> None:
    left = {module: ours(imports(module)) - {module} for module in modules() if module}
    while ready := [module for module, names in left.items() if not names & left.keys()]:
        for module in ready:
            del left[module]
    assert not left


def test_the_tables_know_no_module_that_is_gone() -> None:
    known = {*modules()}
    assert {room_of(module) for module in known} == MAY_IMPORT.keys()
    assert {f"{room}.{inner}" for room, inners in INSIDE.items() for inner in inners} <= known
    assert {*THIRD_PARTY, *MAY, *FOR_ALL, *DOORS, *(m for ms in MAY.values() for m in ms)} <= known


def test_no_two_classes_share_a_name() -> None:
    """So that a word means one thing in the whole source; an underscore makes it no other word."""
    where = defaultdict(list)
    for module in modules():
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                where[node.name.strip("_")].append(module)
    assert {name: found for name, found in where.items() if len(found) > 1} == {}


@of_each([m for m in modules() if m != "__main__" and not stub_of(m)])
def test_every_module_has_a_sorted_all(module: str) -> None:
    body = tree_of(module).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names, key=_isort_key)
            return
    is_private = "._" in f".{module}" or room_of(module) in {"cli", "formats"}
    assert len(body) == 1 or is_private, "no __all__, and more than a docstring"


def _isort_key(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


OF_FUTURES = {
    "_base.fanout": {"Future", "ThreadPoolExecutor", "wait"},  # in threads no interrupt reaches
    "_base.own_processes": {"Future", "ThreadPoolExecutor"},
    "checks._engine": {"BrokenExecutor"},  # the user's own is used
    "fetching._prefetcher": {"Future", "wait"},  # of a shard, which is waited for in such a thread
    "datasets.tokens._comms": {"Future"},  # of a coroutine, which a thread of ours waits for
}


@of_each([m for m in modules() if m.split(".")[0] != "testing"])
def test_pools_of_concurrent_futures_are_made_in_one_place(module: str) -> None:
    """An interrupt in one of their locks keeps it held for ever: not for the main thread."""
    text = path_of(module).read_text()
    assert names_of_futures(text) == OF_FUTURES.get(module, set())


def test_a_use_of_concurrent_futures_is_seen() -> None:
    assert names_of_futures("from concurrent.futures import wait, Future") == {"wait", "Future"}
    assert names_of_futures("import concurrent.futures\nconcurrent.futures.wait(())") == {"wait"}
    assert names_of_futures("from concurrent import futures") == {"futures"}
    assert names_of_futures("import concurrent.futures as cf") == {"as cf"}
    assert names_of_futures("loop.run_in_executor(None, f)") == {"run_in_executor"}
    assert names_of_futures("asyncio.to_thread(f)") == {"to_thread"}


def names_of_futures(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("concurrent"):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = (a for a in node.names if a.name.startswith("concurrent") and a.asname)
            found |= {f"as {alias.asname}" for alias in names}
        elif isinstance(node, ast.Attribute):
            by_loop = node.attr in {"run_in_executor", "to_thread"}
            if by_loop or ast.unparse(node.value) == "concurrent.futures":
                found.add(node.attr)
    return found


def test_only_files_renames_syncs_or_unlinks() -> None:
    changing = {"rename", "replace", "renames", "unlink", "remove", "rmdir", "rmtree", "fsync"}
    for module in modules():
        if module.startswith("_base.files") or module.split(".")[0] == "testing":
            continue
        calls = {
            f"{ast.unparse(node.value)}.{node.attr}"
            for node in ast.walk(tree_of(module))
            if isinstance(node, ast.Attribute) and node.attr in changing
        }
        assert not {call for call in calls if call.split(".")[0] in {"os", "shutil"}}


SWALLOWING = {
    *("exists", "lexists", "isdir", "isfile", "islink", "ismount", "isjunction", "access"),
    *("is_file", "is_dir", "is_symlink", "is_mount", "is_junction", "is_socket", "is_fifo"),
    *("is_block_device", "is_char_device", "glob", "iglob", "rglob", "walk", "fwalk"),
    *("realpath", "resolve"),
}
"""What answers "not there" where nobody could look: of os, os.path, glob and paths."""

MAY_SWALLOW = {"testing.faults.file_system._os": {"is_dir", "is_file", "is_symlink"}}
"""It makes a DirEntry."""


def swallowing(tree: ast.AST) -> set[str]:
    """What a module uses of those; not of a ``DirEntry``, which is named ``entry``: it raises."""
    found = set()
    strict = {id(node.func) for node in ast.walk(tree) if _is_strict(node)}
    for node in ast.walk(tree):
        if id(node) in strict:
            continue
        if isinstance(node, ast.Attribute) and not _is_entry(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "glob"}:
            found |= {alias.name for alias in node.names}
    return found & SWALLOWING


def _is_strict(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(
        word.arg == "strict" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in node.keywords
    )


def _is_entry(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "entry"


@pytest.mark.slow
@of_each(modules())
def test_nothing_takes_what_nobody_could_look_at_for_absent(module: str) -> None:
    """`_opening` has what to use instead; ruff says so too, of what it can see."""
    found = swallowing(tree_of(module))
    assert found == MAY_SWALLOW.get(module, set()), "use shardproof._base.opening, or raise"


@pytest.mark.parametrize(
    ("code", "is_seen"),
    [
        ("os.path.exists(path)", True),
        ("map(Path.is_dir, paths)", True),
        ("from os.path import isdir", True),
        ("root.entry.is_dir()", True),
        ("os.path.realpath(path, strict=False)", True),
        ("entry.is_file(follow_symlinks=False)", False),
        ("'path.exists()'", False),
        ("os.path.realpath(at, strict=True)", False),
    ],
)
def test_what_swallows_is_seen(code: str, is_seen: bool) -> None:
    assert bool(swallowing(ast.parse(code))) is is_seen


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_what_fetches_loads_no_client_before_it_is_used() -> None:
    loaded = loaded_by("import shardproof.datasets, shardproof.staging")
    clients = {"datasets", "fsspec", "httpx", "huggingface_hub", "pyarrow", "tenacity"}
    assert loaded.isdisjoint(clients | {"rich", "click", "torch"})


def imported_first() -> set[tuple[str, ...]]:
    """What a thread may import first: a room, or what a function imports of another one."""
    found = {(f"shardproof.{room}",) for room in MAY_IMPORT if room not in {"", "__main__"}}
    for module in modules():
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        functions = (node for node in ast.walk(tree_of(module)) if isinstance(node, kinds))
        for node in (node for function in functions for node in ast.walk(function)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shardproof."):
                home = str(node.module)
                inside = [f"{home}.{each.name}" for each in node.names]
                if room_of(home.removeprefix("shardproof.")) != room_of(module):
                    found.add((home, *(name for name in inside if name[11:] in modules())))
    return found


@pytest.mark.slow
def test_threads_that_import_take_the_locks_of_modules_in_one_order() -> None:
    behind: dict[str, set[str]] = defaultdict(set)
    for names in imported_first():
        command = [sys.executable, "-m", "tests.helpers.import_locks", "shardproof", *names]
        run = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
        for held, taken in json.loads(run.stdout):
            behind[held].add(taken)
            behind[taken] |= set()
    known = "shardproof.fetching.transfer", "shardproof.fetching.transfer._fetch"
    assert known[1] in behind[known[0]], "no lock is seen"
    while last := [name for name, names in behind.items() if not names & behind.keys()]:
        for name in last:
            del behind[name]
    assert not behind


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = loaded_by("import shardproof") - loaded_by("import typing")
    assert loaded - sys.stdlib_module_names == {"shardproof"}


def test_the_library_loads_no_terminal_and_no_test_code() -> None:
    loaded = loaded_by("import shardproof; shardproof.validate; shardproof.ShardInfo")
    assert loaded.isdisjoint(
        {"beartype", "click", "rich", "pytest", "hypothesis", "pyfakefs", "torch"}
    )


FACADES = [module for module in modules() if stub_of(module)]
ROOMS = re.findall(r"(?m)^from shardproof import (\w+)", (SOURCE / "__init__.pyi").read_text())


@pytest.mark.parametrize("module", FACADES)
def test_a_stub_has_the_names_of_its_package(module: str) -> None:
    package = importlib.import_module(f"shardproof.{module}".removesuffix("."))
    said = {}
    for node in ast.walk(stub_of(module)):
        if isinstance(node, ast.ImportFrom):
            assert all(alias.asname == alias.name for alias in node.names)
            said |= {alias.name: node.module for alias in node.names}
    assert package.__all__ == dir(package) == sorted(said)
    for name, home in said.items():
        assert getattr(package, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(package, "nonsense")  # noqa: B009 - the attribute is what fails


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_an_attribute_and_is_imported_when_it_is_asked_for(room: str) -> None:
    code = f"import sys, shardproof; assert 'shardproof.{room}' not in sys.modules;"
    code += f"assert shardproof.{room} is sys.modules['shardproof.{room}']"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_says_what_it_promises() -> None:
    for name in shardproof.__all__:
        if name != "Level":
            assert (getattr(shardproof, name).__doc__ or "").strip(), name
