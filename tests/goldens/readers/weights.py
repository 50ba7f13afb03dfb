"""Weights of models, and checkpoints."""
