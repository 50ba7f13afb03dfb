"""Names of a package that are imported when they are asked for; imports while pyfakefs fakes.

What is imported while pyfakefs fakes the file system is imported as if it did not. A module that is
imported under its patches holds fake modules, and pyfakefs forgets the module at the end; but a
name that was taken of it is used again, and numpy can't be loaded twice. So its patches are off
while our modules, and what they need, are loaded.
"""

import sys
from _thread import RLock  # that of threading, without what importing that takes

TYPE_CHECKING = False  # that of typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_OURS = ("shardproof", "beartype", "numpy")
"""Packages that are loaded so; beartype and numpy, because a process can load them only once."""


def attached(
    package: str, homes: "Mapping[str, str]"
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__getattr__`` and ``__dir__`` for a package whose names are imported when asked for.

    Args:
        package: Its ``__name__``.
        homes: For each name the module of the package that has it; ``""`` where it is a module.
    """

    def get(name: str) -> "Any":
        if name not in homes:
            from shardproof._base.messages import quoted  # noqa: PLC0415 - only for an error

            raise AttributeError(f"module {quoted(package)} has no attribute {quoted(name)}")
        from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

        home = homes[name]
        module = import_module(f"{package}.{home or name}")
        value = getattr(module, name) if home else module
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(homes)

    return get, names


def install() -> None:
    """Load our modules with real files, from now on, where pyfakefs is installed."""
    try:  # without importlib.util, whose import takes longer than ours
        finders = (finder.find_spec("pyfakefs", None) for finder in sys.meta_path)
        if "pyfakefs" not in sys.modules and not any(finders):
            return
    except ImportError:  # of a finder that is not ours
        return
    # This module itself may have been loaded before, by a reload.
    before = [finder for finder in sys.meta_path if type(finder).__module__ == __name__]
    for finder in before:
        sys.meta_path.remove(finder)
    # pyfakefs, where it is active, expects its own finder in the first place.
    sys.meta_path.insert(_patcher() is not None, _Finder())


def _patcher() -> "Any":
    """Return what fakes the file system at this moment, or None."""
    pyfakefs = sys.modules.get("pyfakefs.fake_filesystem_unittest")
    patcher = pyfakefs and pyfakefs.Patcher.PATCHER
    return patcher if patcher and patcher.is_patching else None


class _Finder:
    """Finds our modules where the finders after it do."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if not _is_ours(name) or not (_patcher() or _REAL_FILES.n_inside):
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            if spec := finder.find_spec(name, path, target):
                if spec.loader is not None:
                    spec.loader = _Loader(spec, spec.loader)  # type: ignore[assignment]
                return spec
        return None


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in _OURS


class _Loader:
    """Loads a module as another loader does, with real files, and leaves no trace of itself."""

    def __init__(self, spec: "ModuleSpec", loader: "Loader") -> None:
        self._spec = spec
        self._loader = loader

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self._loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        module.__loader__ = self._spec.loader = self._loader
        with _REAL_FILES:
            self._loader.exec_module(module)


class _RealFiles:
    """A context in which no file is fake, for no thread; it may be entered by several."""

    def __init__(self) -> None:
        # Not held inside: a thread that waits for it may hold the lock of a module.
        self._lock = RLock()
        self.n_inside = 0
        self._off: _PatchesOff | None = None

    def __enter__(self) -> None:
        with self._lock:
            if patcher := _patcher():
                self._off = _PatchesOff(patcher)
            self.n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.n_inside -= 1
            if self._off and not self.n_inside:
                self._off.put_on()
                self._off = None


class _PatchesOff:
    """Patches that are off, and the modules that pyfakefs forgot thereby."""

    def __init__(self, patcher: "Any") -> None:
        self._patcher = patcher
        before = dict(sys.modules)
        patcher.pause()
        self._forgotten = {
            name: module for name, module in before.items() if name not in sys.modules
        }
        for name, module in self._forgotten.items():
            if _is_ours(name) or getattr(module.__spec__, "_initializing", False):
                sys.modules[name] = module

    def put_on(self) -> None:
        """Patch everything again, and what was imported meanwhile, unless it is over."""
        if self._patcher is not type(self._patcher).PATCHER:
            return
        import warnings  # noqa: PLC0415 - which pyfakefs has loaded

        with warnings.catch_warnings(action="ignore"):
            self._patcher._find_modules()  # which only its setUp calls
        self._patcher.resume()
        for name, module in self._forgotten.items():
            if sys.modules.setdefault(name, module) is module and not _is_ours(name):
                self._patcher._dyn_patcher.needs_patch(name)  # forgets it at the end


_REAL_FILES = _RealFiles()
