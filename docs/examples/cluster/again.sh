#!/bin/bash
# again.sh prepare.py CORPUS OUTPUT: submit the array again if shards are left.
set -euo pipefail
code=0
shardproof receipts "$3" || code=$?
case $code in
    0) echo "all shards are made" ;;
    1) sbatch prepare.sh "$@" ;;
    *) exit "$code" ;; # a receipt could not be read: do not guess
esac
