#!/usr/bin/env bash
# sft-lora-8b-24gb-1: LoRA r16 bf16, one device
# model Qwen/Qwen3-8B
# data  /data/rows.jsonl
# Written by tunewright X.Y.Z on 2026-01-31. It needs that program's python, and no screen.
#
#   bash run.sh            trains; everything lands in the folder of this file
#   bash run.sh --resume   goes on from the last checkpoint
#   bash run.sh --smoke    a few steps with the longest samples, then memory beside the plan
#   touch stop             (in this folder) saves a checkpoint and ends with 75
#   --max-restarts N, --on-oom next|stop, --on-hang restart|stop, --hang-seconds N, --exact: what is
#   done about failures, in place of what is written below; --after FOLDER waits for another run to
#   end; --share-devices trains beside another run on the same devices; --then COMMAND ARGUMENTS,
#   last, runs when this one is over, unless it was only stopped
#
# It ends with: 0 done · 64 bad spec · 65 bad data · 69 devices missing · 71 device out of memory ·
# 72 host out of memory · 73 cannot write · 74 loss not finite · 75 stopped, can be resumed ·
# 76 communication failed or a rank was lost · 70 anything else

set -uo pipefail
umask 077 # data and weights are their owner's business
cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 73

# shellcheck disable=SC2016,SC1003 # names stay in single quotes, whatever looks like code in them
NAME=sft-lora-8b-24gb-1
# shellcheck disable=SC2016,SC1003
PLANNED_PYTHON=/opt/tunewright/bin/python
PYTHON=${TUNEWRIGHT_PYTHON:-$PLANNED_PYTHON} # another server: TUNEWRIGHT_PYTHON=… bash run.sh

RANKS=1        # processes on this machine, one per device
RUNGS=3        # spec.1.toml …: the same effective batch in less memory, tried after a 71
EXACT_RUNGS=3  # of these, in order, the ones that go on with the optimizer's state as it is
ON_OOM=next    # after a 71: next rung, or stop
ON_HANG=restart # after ranks hung: restart, or stop
HANG_SECONDS=600 # a rank's silence, or time without a step, that counts as hung; 0 never does
MAX_RESTARTS=1 # times to go on from the last checkpoint after a 72 or a 76
EXACT=0        # 1: never a rung that starts the optimizer's state anew
AFTER=""
SHARE=0
THEN=()
HELD=() # open locks of the devices
TRAIN_OPTIONS=()
BEGIN_OPTIONS=(--new) # refused where checkpoints of an earlier run lie

export PYTHONSAFEPATH=1                            # a folder beside this file never replaces an installed package
export PYTHONUNBUFFERED=1                          # logs show a line when it is written
export OMP_NUM_THREADS=1                           # the number of cores is unknown, and ranks must not fight over them
export TOKENIZERS_PARALLELISM=false                # its threads do not survive forked data workers
export CUDA_DEVICE_ORDER=PCI_BUS_ID                # numbers mean what nvidia-smi shows
export PYTORCH_ALLOC_CONF=expandable_segments:True # less memory lost in fragments

<the template>

keep spec.toml <<'END_OF_SPEC'
version = 1

[model]
model = "Qwen/Qwen3-8B" # the preset sft-lora-8b-24gb names it
source = "auto" # fetched once, then kept
dtype = "bfloat16" # NVIDIA GeForce RTX 4090 has bfloat16 units: half the memory, and no overflow
attn_implementation = "sdpa" # torch's own fused attention: always installed, no scores kept
trust_remote_code = false # code of a model runs only if you say so

[data]
data = "/data/rows.jsonl" # you named it
data_format = "messages" # its rows are in the format messages
max_length = 1024 # the preset sft-lora-8b-24gb fixes it
packing = false # rows keep their own place in a batch; true wastes no token on padding
max_dropped_percent = 1.0 # more bad rows than this point to a wrong file
eval_split = 0.0 # every row is learnt from; 0.1 holds a tenth out

[method]
method = "lora" # the preset sft-lora-8b-24gb fixes it
stage = "sft" # the preset sft-lora-8b-24gb fixes it
lora_rank = 16 # 5,000 rows: room for style, format and facts of that many
lora_alpha = 32 # twice the rank
lora_dropout = 0.0 # costs memory and seldom helps
target_modules = "all-linear" # adapters on every linear layer learn more than on attention alone
use_rslora = false # the usual scale; true keeps ranks of 64 and more from fading
use_dora = false # slower; true often learns more at ranks below 16
init_lora_weights = "default" # starts with no effect; pissa starts nearer, and slower

[parallel]
strategy = "single" # the preset sft-lora-8b-24gb fixes it
device_kind = "cuda" # 1 × NVIDIA GeForce RTX 4090
num_devices = 1 # one device
devices_per_rank = 1 # each rank has a device of its own
devices = [] # these have no UUID
offload = "none" # everything stays on the devices, which is fastest
offload_device = "cpu" # host memory is faster than any disk
ddp_timeout = 1800 # long enough for the slowest load, short enough to notice

[training]
num_train_epochs = 3.0 # 5,000 rows: seen three times
max_steps = -1 # the epochs decide
effective_batch_size = 16 # steady gradients, and enough steps from this much data; the last step of a pass has only 8 rows of its own
per_device_train_batch_size = 8 # the largest part that fits at once
gradient_accumulation_steps = 2 # 16 / (8 × 1), exactly
learning_rate = 0.0002 # adapters take ten times the rate of full tuning
lr_scheduler_type = "cosine" # falls slowly at first and ends near zero
warmup_ratio = 0.03 # the first steps are small while Adam's averages settle
weight_decay = 0.0 # short runs on a trained model do not need it
max_grad_norm = 1.0 # one odd batch cannot throw the weights off
optim = "adamw_torch_fused" # one kernel for all weights: fastest, and no temporary copies
adam_beta1 = 0.9 # Adam's own
adam_beta2 = 0.999 # Adam's own; 0.95 follows large batches faster
adam_epsilon = 1e-08 # Adam's own
gradient_checkpointing = true # activations are computed again in the backward pass: slower, far less memory
activation_offloading = false # activations stay on the device, which is faster
use_liger_kernel = false # the library's own layers; true needs liger-kernel and is faster
torch_compile = false # starts at once; true pays where a run has hours of equal steps
padding_free = false # rows are padded to the longest of their batch; true joins them
group_by_length = false # rows come in random order; true pads less where lengths differ
dataloader_num_workers = 0 # rows are tokens already: a batch is made in no time
seed = 42 # a fixed seed makes the run repeatable
logging_steps = 1 # a curve of 939 steps
report_to = "none" # `tunewright watch` shows a run; a tracker can be told too
save_steps = 219 # about half an hour: no more than that is lost
save_total_limit = 2 # the newest, and one in case it is damaged
END_OF_SPEC

keep spec.1.toml <<'END_OF_SPEC'
version = 1

[model]
model = "Qwen/Qwen3-8B" # the preset sft-lora-8b-24gb names it
source = "auto" # fetched once, then kept
dtype = "bfloat16" # NVIDIA GeForce RTX 4090 has bfloat16 units: half the memory, and no overflow
attn_implementation = "sdpa" # torch's own fused attention: always installed, no scores kept
trust_remote_code = false # code of a model runs only if you say so

[data]
data = "/data/rows.jsonl" # you named it
data_format = "messages" # its rows are in the format messages
max_length = 1024 # the preset sft-lora-8b-24gb fixes it
packing = false # rows keep their own place in a batch; true wastes no token on padding
max_dropped_percent = 1.0 # more bad rows than this point to a wrong file
eval_split = 0.0 # every row is learnt from; 0.1 holds a tenth out

[method]
method = "lora" # the preset sft-lora-8b-24gb fixes it
stage = "sft" # the preset sft-lora-8b-24gb fixes it
lora_rank = 16 # 5,000 rows: room for style, format and facts of that many
lora_alpha = 32 # twice the rank
lora_dropout = 0.0 # costs memory and seldom helps
target_modules = "all-linear" # adapters on every linear layer learn more than on attention alone
use_rslora = false # the usual scale; true keeps ranks of 64 and more from fading
use_dora = false # slower; true often learns more at ranks below 16
init_lora_weights = "default" # starts with no effect; pissa starts nearer, and slower

[parallel]
strategy = "single" # the preset sft-lora-8b-24gb fixes it
device_kind = "cuda" # 1 × NVIDIA GeForce RTX 4090
num_devices = 1 # one device
devices_per_rank = 1 # each rank has a device of its own
devices = [] # these have no UUID
offload = "none" # everything stays on the devices, which is fastest
offload_device = "cpu" # host memory is faster than any disk
ddp_timeout = 1800 # long enough for the slowest load, short enough to notice

[training]
num_train_epochs = 3.0 # 5,000 rows: seen three times
max_steps = -1 # the epochs decide
effective_batch_size = 16 # steady gradients, and enough steps from this much data; the last step of a pass has only 8 rows of its own
per_device_train_batch_size = 4 # changed by this rung: less memory
gradient_accumulation_steps = 4 # changed by this rung: less memory
learning_rate = 0.0002 # adapters take ten times the rate of full tuning
lr_scheduler_type = "cosine" # falls slowly at first and ends near zero
warmup_ratio = 0.03 # the first steps are small while Adam's averages settle
weight_decay = 0.0 # short runs on a trained model do not need it
max_grad_norm = 1.0 # one odd batch cannot throw the weights off
optim = "adamw_torch_fused" # one kernel for all weights: fastest, and no temporary copies
adam_beta1 = 0.9 # Adam's own
adam_beta2 = 0.999 # Adam's own; 0.95 follows large batches faster
adam_epsilon = 1e-08 # Adam's own
gradient_checkpointing = true # activations are computed again in the backward pass: slower, far less memory
activation_offloading = false # activations stay on the device, which is faster
use_liger_kernel = false # the library's own layers; true needs liger-kernel and is faster
torch_compile = false # starts at once; true pays where a run has hours of equal steps
padding_free = false # rows are padded to the longest of their batch; true joins them
group_by_length = false # rows come in random order; true pads less where lengths differ
dataloader_num_workers = 0 # rows are tokens already: a batch is made in no time
seed = 42 # a fixed seed makes the run repeatable
logging_steps = 1 # a curve of 939 steps
report_to = "none" # `tunewright watch` shows a run; a tracker can be told too
save_steps = 219 # about half an hour: no more than that is lost
save_total_limit = 2 # the newest, and one in case it is damaged
END_OF_SPEC

keep spec.2.toml <<'END_OF_SPEC'
version = 1

[model]
model = "Qwen/Qwen3-8B" # the preset sft-lora-8b-24gb names it
source = "auto" # fetched once, then kept
dtype = "bfloat16" # NVIDIA GeForce RTX 4090 has bfloat16 units: half the memory, and no overflow
attn_implementation = "sdpa" # torch's own fused attention: always installed, no scores kept
trust_remote_code = false # code of a model runs only if you say so

[data]
data = "/data/rows.jsonl" # you named it
data_format = "messages" # its rows are in the format messages
max_length = 1024 # the preset sft-lora-8b-24gb fixes it
packing = false # rows keep their own place in a batch; true wastes no token on padding
max_dropped_percent = 1.0 # more bad rows than this point to a wrong file
eval_split = 0.0 # every row is learnt from; 0.1 holds a tenth out

[method]
method = "lora" # the preset sft-lora-8b-24gb fixes it
stage = "sft" # the preset sft-lora-8b-24gb fixes it
lora_rank = 16 # 5,000 rows: room for style, format and facts of that many
lora_alpha = 32 # twice the rank
lora_dropout = 0.0 # costs memory and seldom helps
target_modules = "all-linear" # adapters on every linear layer learn more than on attention alone
use_rslora = false # the usual scale; true keeps ranks of 64 and more from fading
use_dora = false # slower; true often learns more at ranks below 16
init_lora_weights = "default" # starts with no effect; pissa starts nearer, and slower

[parallel]
strategy = "single" # the preset sft-lora-8b-24gb fixes it
device_kind = "cuda" # 1 × NVIDIA GeForce RTX 4090
num_devices = 1 # one device
devices_per_rank = 1 # each rank has a device of its own
devices = [] # these have no UUID
offload = "none" # everything stays on the devices, which is fastest
offload_device = "cpu" # host memory is faster than any disk
ddp_timeout = 1800 # long enough for the slowest load, short enough to notice

[training]
num_train_epochs = 3.0 # 5,000 rows: seen three times
max_steps = -1 # the epochs decide
effective_batch_size = 16 # steady gradients, and enough steps from this much data; the last step of a pass has only 8 rows of its own
per_device_train_batch_size = 2 # changed by this rung: less memory
gradient_accumulation_steps = 8 # changed by this rung: less memory
learning_rate = 0.0002 # adapters take ten times the rate of full tuning
lr_scheduler_type = "cosine" # falls slowly at first and ends near zero
warmup_ratio = 0.03 # the first steps are small while Adam's averages settle
weight_decay = 0.0 # short runs on a trained model do not need it
max_grad_norm = 1.0 # one odd batch cannot throw the weights off
optim = "adamw_torch_fused" # one kernel for all weights: fastest, and no temporary copies
adam_beta1 = 0.9 # Adam's own
adam_beta2 = 0.999 # Adam's own; 0.95 follows large batches faster
adam_epsilon = 1e-08 # Adam's own
gradient_checkpointing = true # activations are computed again in the backward pass: slower, far less memory
activation_offloading = false # activations stay on the device, which is faster
use_liger_kernel = false # the library's own layers; true needs liger-kernel and is faster
torch_compile = false # starts at once; true pays where a run has hours of equal steps
padding_free = false # rows are padded to the longest of their batch; true joins them
group_by_length = false # rows come in random order; true pads less where lengths differ
dataloader_num_workers = 0 # rows are tokens already: a batch is made in no time
seed = 42 # a fixed seed makes the run repeatable
logging_steps = 1 # a curve of 939 steps
report_to = "none" # `tunewright watch` shows a run; a tracker can be told too
save_steps = 219 # about half an hour: no more than that is lost
save_total_limit = 2 # the newest, and one in case it is damaged
END_OF_SPEC

keep spec.3.toml <<'END_OF_SPEC'
version = 1

[model]
model = "Qwen/Qwen3-8B" # the preset sft-lora-8b-24gb names it
source = "auto" # fetched once, then kept
dtype = "bfloat16" # NVIDIA GeForce RTX 4090 has bfloat16 units: half the memory, and no overflow
attn_implementation = "sdpa" # torch's own fused attention: always installed, no scores kept
trust_remote_code = false # code of a model runs only if you say so

[data]
data = "/data/rows.jsonl" # you named it
data_format = "messages" # its rows are in the format messages
max_length = 1024 # the preset sft-lora-8b-24gb fixes it
packing = false # rows keep their own place in a batch; true wastes no token on padding
max_dropped_percent = 1.0 # more bad rows than this point to a wrong file
eval_split = 0.0 # every row is learnt from; 0.1 holds a tenth out

[method]
method = "lora" # the preset sft-lora-8b-24gb fixes it
stage = "sft" # the preset sft-lora-8b-24gb fixes it
lora_rank = 16 # 5,000 rows: room for style, format and facts of that many
lora_alpha = 32 # twice the rank
lora_dropout = 0.0 # costs memory and seldom helps
target_modules = "all-linear" # adapters on every linear layer learn more than on attention alone
use_rslora = false # the usual scale; true keeps ranks of 64 and more from fading
use_dora = false # slower; true often learns more at ranks below 16
init_lora_weights = "default" # starts with no effect; pissa starts nearer, and slower

[parallel]
strategy = "single" # the preset sft-lora-8b-24gb fixes it
device_kind = "cuda" # 1 × NVIDIA GeForce RTX 4090
num_devices = 1 # one device
devices_per_rank = 1 # each rank has a device of its own
devices = [] # these have no UUID
offload = "none" # everything stays on the devices, which is fastest
offload_device = "cpu" # host memory is faster than any disk
ddp_timeout = 1800 # long enough for the slowest load, short enough to notice

[training]
num_train_epochs = 3.0 # 5,000 rows: seen three times
max_steps = -1 # the epochs decide
effective_batch_size = 16 # steady gradients, and enough steps from this much data; the last step of a pass has only 8 rows of its own
per_device_train_batch_size = 1 # changed by this rung: less memory
gradient_accumulation_steps = 16 # changed by this rung: less memory
learning_rate = 0.0002 # adapters take ten times the rate of full tuning
lr_scheduler_type = "cosine" # falls slowly at first and ends near zero
warmup_ratio = 0.03 # the first steps are small while Adam's averages settle
weight_decay = 0.0 # short runs on a trained model do not need it
max_grad_norm = 1.0 # one odd batch cannot throw the weights off
optim = "adamw_torch_fused" # one kernel for all weights: fastest, and no temporary copies
adam_beta1 = 0.9 # Adam's own
adam_beta2 = 0.999 # Adam's own; 0.95 follows large batches faster
adam_epsilon = 1e-08 # Adam's own
gradient_checkpointing = true # activations are computed again in the backward pass: slower, far less memory
activation_offloading = false # activations stay on the device, which is faster
use_liger_kernel = false # the library's own layers; true needs liger-kernel and is faster
torch_compile = false # starts at once; true pays where a run has hours of equal steps
padding_free = false # rows are padded to the longest of their batch; true joins them
group_by_length = false # rows come in random order; true pads less where lengths differ
dataloader_num_workers = 0 # rows are tokens already: a batch is made in no time
seed = 42 # a fixed seed makes the run repeatable
logging_steps = 1 # a curve of 939 steps
report_to = "none" # `tunewright watch` shows a run; a tracker can be told too
save_steps = 219 # about half an hour: no more than that is lost
save_total_limit = 2 # the newest, and one in case it is damaged
END_OF_SPEC

<the template>
