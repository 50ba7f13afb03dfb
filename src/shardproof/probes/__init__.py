"""The laws of single files, which many formats hold: by bounded reads, never the whole file.

Each module has the laws of one kind of file, and a function ``probe`` that is a
`shardproof.manifest.Probe`.
"""
