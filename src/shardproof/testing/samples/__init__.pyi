from shardproof.testing.samples import checkpoint as checkpoint
from shardproof.testing.samples import receipts as receipts
from shardproof.testing.samples import saev as saev
