#!/usr/bin/env bash
# Predicted and measured memory, speed and MFU of real runs on this machine's first GPU, in 6 minutes.
#
#   benchmarks/gpu_check.sh WHEELS OUT            on the GPU; no network is needed
#   benchmarks/gpu_check.sh WHEELS OUT --rehearse the same on a CPU with tiny shapes
#
# WHEELS is what `python -m benchmarks.gpu_wheels WHEELS` made on a machine with a network; it lies
# over the python3 there, which has torch. OUT gets results.json, and the output of each run.
#
# Library defaults that change memory or speed by a factor; each is set, and each has a test:
#   a model given by name is loaded in float32: the spec's dtype is always given
#     tests/engine/test_traps.py  test_the_base_is_loaded_in_the_number_format_of_the_spec
#   DDP keeps a second copy of the gradients: they are views into its buckets
#     tests/engine/test_traps.py  test_gradients_live_in_the_buckets_of_ddp
#   PEFT copies an adapter's inputs to float32: autocast alone fits them
#     tests/engine/test_adapter.py  test_inputs_that_are_not_copied_give_the_same_numbers_and_keep_less
#   FSDP2 with accumulation keeps whole gradients: they are shared after each micro-batch
#     tests/engine/test_shard.py  test_fsdp_shards_gradients_of_each_micro_batch_and_saves_shards
# and three that cannot be set, so that the plan counts them:
#   bitsandbytes does not quantise 3-D expert tensors
#     tests/test_planner.py  test_experts_are_not_counted_as_4_bit
#   ZeRO-3 keeps the weights of models under 1e9 gathered
#     tests/tape/test_sharding.py  test_a_zero_step_peaks_as_traced
#   pinned host memory comes in powers of two: wizard/planner/host.py
set -euo pipefail

wheels=$(realpath -- "$1")
mkdir -p -- "$2"
out=$(realpath -- "$2")
shift 2
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
site=$(mktemp -d)
trap 'rm -rf -- "$site"' EXIT
python=${PYTHON:-python3}

# The program and the wheels in an environment over the python there: run.sh takes no other.
"$python" -m venv --without-pip --system-site-packages "$site"
where='import sysconfig; print(sysconfig.get_path("purelib"))'
own=$("$site/bin/python" -c "$where")
printf '%s\n' "$root" "$("$python" -c "$where")" >"$own/tunewright.pth"
"$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$own" \
  "$wheels"/*.whl
cd -- "$root"
HF_HUB_OFFLINE=1 "$site/bin/python" -m benchmarks.gpu_check "$out" "$@"
