"""seal.py SHARDS: seal a million files by workers in jobs of SLURM; run it on a login node."""

import sys

from dask.distributed import Client
from dask_jobqueue import SLURMCluster

import shardproof


def main(shards: str, n_jobs: int = 16) -> None:
    how = {"cores": 1, "memory": "4GB", "walltime": "02:00:00"}
    with SLURMCluster(**how) as cluster, Client(cluster) as client:
        cluster.scale(jobs=n_jobs)
        client.wait_for_workers(1)  # the others join as SLURM starts them
        sealed = shardproof.seal(shards, executor=client.get_executor(), progress=True)
    print(f"{sealed.n_files} files are in {sealed.list_path}")


if __name__ == "__main__":
    main(sys.argv[1])
