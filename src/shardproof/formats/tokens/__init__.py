"""Formats of which each shard is one long row of tokens: Megatron, NumPy arrays, llm.c."""
