"""What hypothesis calls when it is imported (its entry point ``hypothesis``)."""

from importlib import import_module

from shardproof.testing.samples._layout import Layout

_STRATEGIES = "shardproof.testing.strategies"  # not imported before it is needed


def register() -> None:
    """Let ``st.from_type(Layout)``, and annotations of ``@given(...)``, find the strategy."""
    from hypothesis import strategies as st  # noqa: PLC0415 - it is being imported: not above

    st.register_type_strategy(Layout, lambda _: import_module(_STRATEGIES).layouts())
