"""What writes each golden directory: a module for each room of formats."""

from . import hub, lists, samples, tokens, weights
from ._cases import CASES, CHECKOUTS, Case

__all__ = ["CASES", "CHECKOUTS", "Case", "hub", "lists", "samples", "tokens", "weights"]
