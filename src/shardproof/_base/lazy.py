"""Names of a package that are imported when somebody asks for them (PEP 562)."""

TYPE_CHECKING = False  # that of typing takes longer than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["attached"]


def attached(
    package: str, homes: "Mapping[str, str]"
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: Its ``__name__``.
        homes: For each name the module of the package that has it; ``""`` where it is a module.
    """

    def get(name: str) -> "Any":
        if name not in homes:
            from shardproof._base.messages import quoted  # noqa: PLC0415 - only for an error

            raise AttributeError(f"module {quoted(package)} has no attribute {quoted(name)}")
        import sys  # noqa: PLC0415 - only when a name is asked for
        from importlib import import_module  # noqa: PLC0415 - as above

        home = homes[name]
        module = import_module(f"{package}.{home or name}")
        value = getattr(module, name) if home else module
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(homes)

    return get, names
