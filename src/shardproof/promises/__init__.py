"""What is expected of a directory: by its own manifest and seal, a list, a source, another one."""

from shardproof.promises._promise import Promise, promise_of

__all__ = ["Promise", "promise_of"]
