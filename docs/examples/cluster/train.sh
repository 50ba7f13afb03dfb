#!/bin/bash
#SBATCH --job-name=train
#SBATCH --time=12:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
# sbatch train.sh train.py SHARDS: one torchrun a node; its ranks share one check.
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="${RANKS_PER_NODE:-4}" \
    --rdzv-backend=c10d --rdzv-endpoint="$first:29500" --rdzv-id="$SLURM_JOB_ID" "$@"
