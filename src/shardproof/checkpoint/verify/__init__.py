"""Which checkpoints are there, and which of them are whole."""
