"""Names of a package that are imported when they are asked for, and what must be installed."""

import sys

TYPE_CHECKING = False  # that of typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TESTING = {"hypothesis", "pyfakefs", "pytest"}


def attached(
    package: str,
) -> "tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names late."""
    # Which they are, and where each is, its stub says, which type checkers read: one name a line.
    # Read by what this module was loaded by, also from a zip file, or while pyfakefs fakes `open`.
    loader: Any = __spec__.loader
    stub = loader.get_data(f"{sys.modules[package].__path__[0]}/__init__.pyi").decode()
    words = (line.split() for line in stub.splitlines() if line.startswith("from "))
    homes = {name: home for _, home, _, name, *_ in words}

    def get(name: str) -> "Any":
        if name not in homes:
            from shardproof._base.messages import quoted  # noqa: PLC0415 - only for an error

            raise AttributeError(f"module {quoted(package)} has no attribute {quoted(name)}")
        from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

        is_module = homes[name] == package
        found = import_module(f"{package}.{name}" if is_module else homes[name])
        value = found if is_module else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(homes), get, lambda: sorted(homes)


def import_all() -> None:
    """Import what public names need; what is imported while pyfakefs fakes files holds fakes."""
    from importlib import import_module  # noqa: PLC0415 - as above
    from pkgutil import walk_packages  # noqa: PLC0415 - as above

    for door in ("", ".checkpoint", ".datasets", ".fetching", ".receipts"):
        package = import_module(f"shardproof{door}")
        for name in package.__all__:
            getattr(package, name)
    import_module("beartype.door")
    for name in ("formats", "testing.samples", "testing.faults.file_damage"):
        room = import_module(f"shardproof.{name}")
        for module in walk_packages(room.__path__, f"{room.__name__}."):
            import_module(module.name)


class extra:  # noqa: N801 - it is used as a function: that of contextlib takes long to import
    """Import inside what is in the extra ``testing``: where it is missing, the error says so."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        if not isinstance(error, ModuleNotFoundError):
            return
        if (error.name or "").partition(".")[0] in _TESTING:
            from shardproof._base.messages import quoted  # noqa: PLC0415 - only for an error

            text = f"No module named {quoted(error.name)}: pip install 'shardproof[testing]'"
            raise ModuleNotFoundError(text, name=error.name) from error
