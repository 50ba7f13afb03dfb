"""Who may import whom, held as data; what an import costs; what is public."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import shardproof

SOURCE = Path(shardproof.__file__).parent

GROUND = {
    "_arguments",
    "_beneath",
    "_digest",
    "_entry",
    "_files",
    "_json",
    "_loop_threads",
    "_mailbox",
    "_messages",
    "_names",
    "_opening",
    "_paths",
    "_at_exit",
    "_processes",
    "_signals",
    "_threads",
    "_work",
}
PROMISE = {"manifest", "report"}
LOOK = {"_fanout", "checks"}
SAEV = {"saev._json_files", "saev._metadata", "saev._promise", "saev._shard_info"}
ROWS = {"loaders._selection", "loaders._shards"}
EPOCH = {"loaders._source", "loaders._streams"}
LOADER = {
    f"loaders.{name}" for name in ("_loader", "_options", "_orders", "_selection", "_source")
} | GROUND

FETCH = {"prefetch.cache", "prefetch.sources", "prefetch.transfer"}

RECEIPTS = (
    "_assignment",
    "_claim_files",
    "_done",
    "_indices",
    "_layout",
    "_pins",
    "_plan",
    "_promise",
    "_records",
    "_runs",
    "_search",
    "_sources",
    "_store",
    "_work",
)

MAY_IMPORT = {
    "errors": {"report"},  # the report for a type checker only
    "_arguments": set(),
    "_digest": {"_digest_tree", "_work"},
    "_digest_tree": {"_work"},
    "_entry": set(),
    "_files": {"_opening", "_processes"},
    "_json": {"_messages", "_names", "_paths"},
    "_loop_threads": {"_threads"},
    "_mailbox": set(),
    "_messages": set(),
    "_beneath": set(),
    "_names": {"_beneath", "_messages", "_opening", "_paths"},
    "_opening": set(),
    "_paths": set(),
    "_at_exit": set(),
    "_processes": set(),
    "_real_imports": set(),
    "_signals": {"_entry"},
    "_threads": {"_mailbox"},
    "_work": {"_mailbox", "_signals", "_threads"},
    "_fanout": {"_work"},
    "_progress": set(),
    "manifest": GROUND,
    "report": GROUND,
    "checks": {"_fanout"} | PROMISE | GROUND,
    "checkpoint.*": LOOK | PROMISE | GROUND,
    "saev": SAEV,
    "saev._counts": GROUND,
    "saev._json_files": GROUND,
    "saev._metadata": {"saev._counts", "saev._json_files"} | GROUND,
    "saev._promise": SAEV | PROMISE | GROUND,
    "saev._shard_info": {"saev._counts", "saev._json_files"} | LOOK | PROMISE | GROUND,
    "receipts": {f"receipts.{name}" for name in RECEIPTS},
    "receipts._assignment": {"receipts._sources"},
    "receipts._canonical": {"_arguments"},
    "receipts._claim_files": {"receipts._layout"} | GROUND,
    "receipts._claims": {"receipts._claim_files", "receipts._layout"} | GROUND,
    "receipts._done": {f"receipts.{name}" for name in ("_layout", "_outputs", "_quick", "_records")}
    | LOOK
    | PROMISE
    | GROUND,
    "receipts._header": {"receipts._layout"} | GROUND,
    "receipts._heartbeat": {"_threads", "receipts._claims"},
    "receipts._indices": set(),
    "receipts._layout": set(),
    "receipts._pins": {
        f"receipts.{name}" for name in ("_canonical", "_layout", "_search", "_sources")
    }
    | GROUND,
    "receipts._plan": {
        "receipts._assignment",
        "receipts._canonical",
        "receipts._header",
        "receipts._layout",
        "receipts._pins",
        "receipts._sources",
    }
    | GROUND,
    "receipts._promise": {
        f"receipts.{name}" for name in ("_done", "_header", "_layout", "_outputs", "_quick")
    }
    | LOOK
    | PROMISE
    | GROUND,
    "receipts._outputs": {"receipts._records"} | GROUND,
    "receipts._quick": {"receipts._layout", "receipts._outputs"} | GROUND,
    "receipts._records": {"receipts._canonical", "receipts._layout"} | GROUND,
    "receipts._runs": {
        "receipts._canonical",
        "receipts._header",
        "receipts._layout",
        "receipts._plan",
        "receipts._store",
    }
    | GROUND,
    "receipts._patterns": {"_opening"},
    "receipts._named": {f"receipts.{name}" for name in ("_done", "_layout", "_quick")} | GROUND,
    "receipts._search": {"receipts._layout"} | GROUND,
    "receipts._sources": {"receipts._canonical", "receipts._patterns"} | GROUND,
    "receipts._store": {
        f"receipts.{name}"
        for name in (
            "_claims",
            "_done",
            "_header",
            "_indices",
            "_layout",
            "_named",
            "_plan",
            "_records",
            "_sources",
            "_work",
        )
    }
    | PROMISE
    | GROUND,
    "receipts._work": {
        f"receipts.{name}"
        for name in (
            "_canonical",
            "_claims",
            "_heartbeat",
            "_layout",
            "_outputs",
            "_records",
            "_sources",
        )
    }
    | GROUND,
    "formats": {"formats.checkpoint", "formats.receipts", "formats.saev"} | PROMISE | GROUND,
    "formats.checkpoint": {"checkpoint"} | PROMISE | GROUND,
    "formats.receipts": {"receipts"} | PROMISE | GROUND,
    "formats.saev": {"saev"} | PROMISE | GROUND,
    "loaders": {f"loaders.{name}" for name in ("_indexed", "_ordered", "_shuffled", "_source")},
    "loaders._course": {"loaders._dealing", "loaders._passes", "loaders._state"},
    "loaders._dealing": {
        "loaders._options",
        "loaders._orders",
        "loaders._state",
        "loaders._streams",
    },
    "loaders._delivery": {"_work", "loaders._gather", "loaders._memory"} | EPOCH | ROWS,
    "loaders._destinations": set(),
    "loaders._gather": {"loaders._destinations", "loaders._memory", "loaders._streams"} | ROWS,
    "loaders._indexed": {
        "loaders._destinations",
        "loaders._gather",
        "loaders._memory",
        "loaders._options",
        "loaders._processes",
        "saev",
    }
    | EPOCH
    | ROWS
    | GROUND,
    "loaders._loader": {
        "loaders._course",
        "loaders._dealing",
        "loaders._delivery",
        "loaders._memory",
        "loaders._options",
        "loaders._orders",
        "loaders._processes",
        "loaders._state",
        "saev",
    }
    | EPOCH
    | GROUND,
    "loaders._memory": set(),
    "loaders._options": {"loaders._torch"} | GROUND,
    "loaders._ordered": LOADER,
    "loaders._orders": {"loaders._selection", "loaders._streams"},
    "loaders._passes": {"loaders._state"},
    "loaders._processes": {"_at_exit"},
    "loaders._selection": {"saev"},
    "loaders._shards": {"loaders._destinations", "loaders._selection", "loaders._submissions"}
    | GROUND,
    "loaders._shuffled": LOADER,
    "loaders._source": {"_names", "_paths", "_work", "checks", "loaders._destinations", "saev"}
    | ROWS,
    "loaders._state": set(),
    "loaders._streams": {"loaders._selection"},
    "loaders._submissions": set(),
    "loaders._torch": {"loaders._passes", "loaders._source", "loaders._state"},
    "prefetch": {f"prefetch.{name}" for name in ("rows", "sources", "tokens", "transfer")}
    | {"prefetch._adopt", "prefetch._prefetcher", "prefetch._stats"},
    "prefetch._adopt": FETCH | LOOK | PROMISE | GROUND,
    "prefetch.sources.*": GROUND,
    "prefetch.transfer.*": {"prefetch.sources"} | GROUND,
    "prefetch.cache.*": {"prefetch.sources"} | GROUND,
    "prefetch._stats": {"_work", "prefetch.transfer"},
    "prefetch._bring": {"prefetch._stats"} | FETCH | GROUND,
    "prefetch._prefetcher": {"_progress", "prefetch._bring", "prefetch._stats"} | FETCH | GROUND,
    "prefetch.rows.*": {"_fanout", "prefetch._prefetcher"} | FETCH | GROUND,
    "prefetch.tokens.*": {"prefetch._bring", "prefetch._stats"} | FETCH | LOOK | PROMISE | GROUND,
    "staging.*": {"formats", "_progress"} | LOOK | PROMISE | GROUND,
    "validation": {"formats", "_progress"} | LOOK | PROMISE | GROUND,
    "cli": {"", "_cli_text", "_cli_usage", "_terminal", "testing", "validation", "formats"}
    | {f"_cli_{name}" for name in ("adopt", "checkpoint", "fetch", "paths", "receipts", "stage")}
    | LOOK
    | PROMISE
    | GROUND,
    "_cli_adopt": {"_cli_paths", "_terminal", "prefetch"} | PROMISE | GROUND,
    "_cli_checkpoint.*": {"_cli_paths", "_cli_text", "_terminal", "checkpoint"} | PROMISE | GROUND,
    "_cli_fetch": {"_cli_paths", "_progress", "_terminal", "prefetch"} | GROUND,
    "_cli_paths": GROUND,
    "_cli_receipts": {"_cli_paths", "_cli_text", "_terminal", "receipts"} | PROMISE | GROUND,
    "_cli_stage": {"_cli_paths", "_terminal", "staging"} | PROMISE | GROUND,
    "_cli_text": set(),
    "_cli_usage": GROUND,
    "_terminal": set(),
    "__main__": {"_entry", "cli"},
    "": {
        "_real_imports",
        "checkpoint",
        "loaders",
        "prefetch",
        "receipts",
        "report",
        "saev",
        "staging",
        "validation",
    },  # the public names, when asked for
    "_pytest_fixtures": {"testing", "testing.fake", "testing.faults", "testing.hub"},
    "pytest_plugin": {"", "_opening", "_pytest_fixtures"},
}
TESTING = {"testing"}
MAY_JUDGE_WITH = {  # public names only; the builders not even those
    "testing.receipts_stateful._hooks": {""},
    "testing.stateful": {""},
}
THIRD_PARTY = {
    "_arguments": {"beartype"},
    "_digest": {"blake3", "xxhash"},
    "_json": {"msgspec"},
    "checkpoint": {"msgspec", "numpy"},
    "checkpoint._dtypes": {"ml_dtypes", "numpy"},
    "checkpoint._fsspec_storage": {"fsspec"},
    "checkpoint._torch": {"numpy", "torch"},
    "_cli_adopt": {"typer"},
    "_cli_checkpoint": {"msgspec", "rich", "typer"},
    "_cli_fetch": {"typer"},
    "_cli_paths": {"typer"},
    "_cli_receipts": {"rich", "typer"},
    "_cli_stage": {"typer"},
    "_cli_text": {"rich"},
    "_cli_usage": {"typer"},
    "prefetch.cache._leases": {"msgspec"},
    "prefetch.cache._locks": {"filelock"},
    "prefetch.cache._proofs": {"msgspec"},
    "prefetch.rows._footers": {"pyarrow"},
    "prefetch.rows._lines": {"pyarrow"},
    "prefetch.rows._kept": {"msgspec"},
    "prefetch.rows._parquet": {"pyarrow"},
    "prefetch.rows._row_counts": {"msgspec"},
    "prefetch.rows._rows": {"datasets", "msgspec", "pyarrow"},
    "prefetch.rows._rows_state": {"msgspec"},
    "prefetch.rows._yaml": {"yaml"},
    "prefetch.sources._fsspec": {"fsspec"},
    "prefetch.sources._hub": {"huggingface_hub", "msgspec"},
    "prefetch.sources._source": {"msgspec"},
    "prefetch.sources._web": {"httpcore", "httpx"},
    "prefetch.tokens": {"numpy"},
    "prefetch.tokens._ranks": {"msgspec"},
    "prefetch.transfer._attempts": {"tenacity"},
    "prefetch.transfer._fetch": {"msgspec"},
    "prefetch.transfer._record": {"msgspec", "xxhash"},
    "staging._proofs": {"msgspec"},
    "receipts": {"msgspec"},
    "receipts._pins": {"huggingface_hub", "msgspec"},
    "loaders": {"numpy"},
    "loaders._shards": {"numpy", "stamina"},
    "loaders._state": {"msgspec"},
    "loaders._loader": {"msgspec"},
    "loaders._torch": {"torch"},
    "_progress": {"rich"},
    "manifest": {"msgspec"},
    "saev": {"msgspec"},
    "cli": {"rich", "typer"},
    "_pytest_fixtures": {"pytest"},
    "pytest_plugin": {"pytest", "_pytest"},
    "testing._checkpoint_strategies": {"hypothesis"},
    "testing._hostile": {"hypothesis"},
    "testing._hypothesis": {"hypothesis"},
    "testing._receipt_strategies": {"hypothesis"},
    "testing.contracts": {"pytest", "hypothesis"},
    "testing.fake": {"pyfakefs"},
    "testing.receipts_stateful": {"hypothesis"},
    "testing.stateful": {"hypothesis"},
    "testing.strategies": {"hypothesis"},
}


@functools.cache
def modules() -> list[str]:
    names = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(name.parts).removesuffix("__init__").removesuffix(".") for name in names)


def path_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def imports(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path_of(module).read_text())):
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


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_the_table_allows(module: str) -> None:
    found = ours(imports(module)) - {"errors"}
    if module.split(".", maxsplit=1)[0] == "testing":
        others = {name for name in found if name.split(".")[0] != "testing"}
        assert others <= MAY_JUDGE_WITH.get(module, set())
    else:
        room, allowed = rule_of(module)
        allowed = {*allowed, "_messages"}  # where whoever makes a message has its words from
        assert {name for name in found if not is_in(name, {room, *allowed})} == set()


def rule_of(module: str) -> tuple[str, set[str]]:
    """The room whose modules may import each other, and what else they may."""
    for room, allowed in MAY_IMPORT.items():
        if room.endswith(".*") and is_in(module, {room.removesuffix(".*")}):
            return room.removesuffix(".*"), allowed
    return module, MAY_IMPORT[module]


WHOLE = {room.removesuffix(".*") for room in MAY_IMPORT if room.endswith(".*")}


def is_in(module: str, rooms: set[str]) -> bool:
    """Whether a module is one of these, or in one of those that are described as a whole."""
    return module in rooms or any(module.startswith(f"{room}.") for room in WHOLE & rooms)


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_its_third_parties(module: str) -> None:
    names = {name.split(".")[0] for name in imports(module)} - {"shardproof"}
    third_party = names - sys.stdlib_module_names
    package = module.rpartition(".")[0]
    assert third_party <= THIRD_PARTY.get(module, THIRD_PARTY.get(package, set()))


def test_the_table_knows_no_module_that_is_gone() -> None:
    known = {rule_of(module)[0] for module in modules() if module.split(".")[0] not in TESTING}
    assert {room.removesuffix(".*") for room in MAY_IMPORT} == known


@pytest.mark.parametrize("module", [m for m in modules() if m not in {"", "__main__"}])
def test_every_module_has_a_sorted_all(module: str) -> None:
    for node in ast.parse(path_of(module).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names, key=_isort_key)
            return
    pytest.fail("no __all__")


def _isort_key(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


OF_FUTURES = {
    "_fanout": {"Executor"},  # the user's own, in `validate(executor=)`
    "checks": {"Executor"},
    "validation": {"Executor"},
    "prefetch.tokens._comms": {"Future"},  # of a coroutine, which a thread of ours waits for
}


@pytest.mark.parametrize("module", [m for m in modules() if m.split(".")[0] != "testing"])
def test_nothing_waits_in_a_lock_of_concurrent_futures(module: str) -> None:
    """An interrupt there keeps it held for ever; `_work` has what there is to use instead."""
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    assert names_of_futures(text) == OF_FUTURES.get(module, set())


@pytest.mark.parametrize("module", [m for m in modules() if m.split(".")[0] != "testing"])
def test_nothing_waits_in_a_lock_that_is_written_in_python(module: str) -> None:
    """An interrupt there keeps it held for ever; `_threads.Stop` has none."""
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    of_python = ("Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer")
    assert not [
        name
        for name in of_python
        if f"threading.{name}(" in text.replace("Stop(threading.Event)", "")
    ]


def test_a_use_of_concurrent_futures_is_seen() -> None:
    """The control."""
    assert names_of_futures("from concurrent.futures import wait, Future") == {"wait", "Future"}
    assert names_of_futures("import concurrent.futures\nconcurrent.futures.wait(())") == {"wait"}
    assert names_of_futures("from concurrent import futures") == {"futures"}
    assert names_of_futures("import concurrent.futures as cf") == {"as cf"}
    assert names_of_futures("loop.run_in_executor(None, f)") == {"run_in_executor"}
    assert names_of_futures("asyncio.to_thread(f)") == {"to_thread"}


def names_of_futures(text: str) -> set[str]:
    """What a module takes of concurrent.futures, by whatever way."""
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
        if module == "_files" or module.split(".")[0] == "testing":
            continue
        calls = {
            f"{ast.unparse(node.value)}.{node.attr}"
            for node in ast.walk(ast.parse(path_of(module).read_text()))
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

MAY_SWALLOW = {
    "testing.faults._scandir": {"is_dir", "is_file", "is_symlink"},  # it makes a DirEntry
}


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


@pytest.mark.parametrize("module", modules())
def test_nothing_takes_what_nobody_could_look_at_for_absent(module: str) -> None:
    """`_opening` has what to use instead; ruff says so too, of what it can see."""
    found = swallowing(ast.parse(path_of(module).read_text()))
    assert found == MAY_SWALLOW.get(module, set()), "use shardproof._opening, or raise"


@pytest.mark.parametrize(
    "code",
    [
        "os.path.exists(path)",
        "path.exists()",
        "Path(a, b).is_file()",
        "filter(os.path.lexists, paths)",
        "map(Path.is_dir, paths)",
        "for path in root.rglob('*'): pass",
        "sorted(glob.glob('*'))",
        "for at in os.walk(path): pass",
        "from os.path import isdir",
        "from glob import iglob as find",
        "os.access(path, os.R_OK)",
        "root.entry.is_dir()",
        "os.path.realpath(path)",
        "os.path.realpath(path, strict=False)",
        "Path(path).resolve()",
    ],
)
def test_what_swallows_is_seen(code: str) -> None:
    assert swallowing(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "entry.is_file(follow_symlinks=False)",
        "'path.exists()'",
        "os.path.realpath(at, strict=True)",
    ],
)
def test_what_does_not_swallow_is_let_be(code: str) -> None:
    assert not swallowing(ast.parse(code))


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_what_fetches_loads_no_client_before_it_is_used() -> None:
    loaded = loaded_by("import shardproof.prefetch, shardproof.staging")
    clients = {"datasets", "filelock", "fsspec", "httpx", "huggingface_hub", "pyarrow", "tenacity"}
    assert loaded.isdisjoint(clients | {"rich", "torch", "typer"})


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = loaded_by("import shardproof") - loaded_by("import typing")
    assert loaded - sys.stdlib_module_names == {"shardproof"}


def test_the_library_loads_no_terminal_and_no_test_code() -> None:
    loaded = loaded_by("import shardproof; shardproof.validate; shardproof.ShardInfo")
    assert loaded.isdisjoint(
        {"typer", "click", "rich", "pytest", "hypothesis", "pyfakefs", "torch"}
    )


def test_public_names_resolve_and_are_listed() -> None:
    assert shardproof.__all__ == sorted(shardproof.__all__, key=_isort_key)
    assert set(shardproof.__all__) <= set(dir(shardproof))
    for name in shardproof.__all__:
        assert getattr(shardproof, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(shardproof, "nonsense")  # noqa: B009 - the attribute is what fails


def test_every_public_name_says_what_it_promises() -> None:
    for name in shardproof.__all__:
        if name != "Level":
            assert (getattr(shardproof, name).__doc__ or "").strip(), name
