"""What writes each golden directory: a module for each room of formats."""

from . import arrays, hub, lists, samples, tokens, weights
from ._cases import CASES, Case, asked

__all__ = ["CASES", "Case", "arrays", "asked", "hub", "lists", "samples", "tokens", "weights"]
