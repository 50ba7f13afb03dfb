"""What reads each golden directory: a module for each room of formats."""

from . import arrays, energon, hub, lists, samples, tokens, weights
from ._readers import READERS, Reader

__all__ = ["READERS", "Reader", "arrays", "energon", "hub", "lists", "samples", "tokens", "weights"]
