"""The bytes and the laws of a checkpoint: names, headers, metadata, a seal."""
