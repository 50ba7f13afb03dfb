"""Names of a package that are imported when they are asked for, and what must be installed."""

import sys

TYPE_CHECKING = False  # that of typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_TESTING = {"hypothesis", "pyfakefs", "pytest"}


def attached(
    package: str, homes: "Mapping[str, str]"
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__getattr__`` and ``__dir__`` for a package whose names are imported when used."""
    # Of each name ``homes`` has the module of the package; no text where it is one itself.

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

    return get, lambda: sorted(homes)


def import_all() -> None:
    """Import what public names need; what is imported while pyfakefs fakes files holds fakes."""
    from importlib import import_module  # noqa: PLC0415 - as above
    from pkgutil import walk_packages  # noqa: PLC0415 - as above

    package = import_module("shardproof")
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
