#!/bin/bash
#SBATCH --job-name=train
#SBATCH --time=12:00:00
# sbatch check.sh SHARDS COMMAND...: run a command on shards that are whole, and stay so while it runs.
set -euo pipefail
shards=$1
shift

# The forecast comes first: the check reads the manifest, which may renew its atime.
shardproof forecast "$shards" --policy "$PURGE_POLICY" --fail-within 1d
shardproof validate --level complete "$shards"
exec srun "$@"
