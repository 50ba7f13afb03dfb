"""What is expected of a directory: by its own manifest and seal, a list, a source, another one."""

from shardproof.expectations._expectation import Expectation, expectation_of

__all__ = ["Expectation", "expectation_of"]
