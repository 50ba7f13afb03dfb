"""Formats of which each shard holds many samples: MDS, LitData, WebDataset, parquet, Arrow, ..."""
