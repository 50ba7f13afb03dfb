"""What hypothesis calls when it is imported (its entry point ``hypothesis``)."""

from shardproof import testing


def register() -> None:
    """Let ``st.from_type(Layout)``, and annotations of ``@given(...)``, find the strategy."""
    from hypothesis import strategies as st  # noqa: PLC0415 - it is being imported: not above

    # Its strategies are imported when one is asked for.
    st.register_type_strategy(testing.Layout, lambda _: testing.strategies.layouts())
