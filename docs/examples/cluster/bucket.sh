#!/bin/bash
# bucket.sh s3://BUCKET/SHARDS JOB...: submit a job, unless shards of the bucket are damaged.
set -euo pipefail
shards=$1
shift
shardproof validate --level complete "$shards"
sbatch "$@" "$shards"
