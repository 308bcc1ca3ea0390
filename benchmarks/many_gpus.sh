#!/usr/bin/env bash
# All evidence of a machine with more than two GPUs, within the time one has it.
#
#   benchmarks/many_gpus.sh OUT GPUS [NCCL_TESTS]     NCCL_TESTS: folder with the built programs of nccl-tests; left out without it
#   CPU_RANKS=4 benchmarks/many_gpus.sh OUT 4         the dry run, on CPU ranks over gloo
#
# In order of worth, each with a deadline of its own, so that a machine taken away early leaves what came first: check over three
# wires; seed 1's table with P2P off; nccl-tests in the same call; profiles of GPU 0; three launches that train at 2, 4, ... GPUs; and
# the tables, predicted from the wire between two GPUs alone and from the whole wire. Results are appended to OUT.
set -u
out=$1
gpus=$2
nccl_tests=${3:-}
python=${PYTHON:-python3}
here=$(dirname "$0")
ranks=()
[ -n "${CPU_RANKS:-}" ] && ranks=(--cpu-ranks "$CPU_RANKS")
export NCCL_NVLS_ENABLE=0

counts=2
for ((n = 4; n <= gpus; n *= 2)); do counts+=,$n; done

part() {
    local seconds=$1
    shift
    timeout --kill-after=10 "$seconds" "$python" "$here/prove.py" --out "$out" --gpus "$gpus" --counts "$counts" "${ranks[@]}" "$@"
    echo "many_gpus: $* ended with $? after ${SECONDS} s"
}

mkdir -p "$out"
part 200 --part check
part 400 --part seed1
if [ -n "$nccl_tests" ]; then part 420 --part nccl_tests --nccl-tests "$nccl_tests"; fi
part 360 --part profiles
part 900 --part train
part 200 --part predictions
part 90 --part faults
