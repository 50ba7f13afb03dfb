"""Old checkpoints go, and what a kill left beside them."""
