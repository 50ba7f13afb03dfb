from shardproof.testing.contracts._child import fingerprint as fingerprint
from shardproof.testing.contracts._contract import SampleDir as SampleDir
from shardproof.testing.contracts._format import FormatContract as FormatContract
from shardproof.testing.contracts._loader import ShardLoaderContract as ShardLoaderContract
from shardproof.testing.contracts._order import ResumableLoaderContract as ResumableLoaderContract
from shardproof.testing.contracts._order import SeededLoaderContract as SeededLoaderContract
from shardproof.testing.contracts._validator import ValidatorContract as ValidatorContract
from shardproof.testing.contracts._writer import WriterContract as WriterContract
