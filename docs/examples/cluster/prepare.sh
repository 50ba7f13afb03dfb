#!/bin/bash
#SBATCH --job-name=prepare
#SBATCH --time=04:00:00
#SBATCH --array=0-3
#SBATCH --signal=TERM@120
# sbatch prepare.sh prepare.py CORPUS OUTPUT: the tasks share the shards that are left.
exec srun python "$@"
