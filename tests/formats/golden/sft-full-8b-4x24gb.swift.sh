#!/usr/bin/env bash
# sft-full-8b-4x24gb-1: Full bf16, ZeRO-3, optimizer on the host on 4 devices
# Not carried over:
#   max_dropped_percent = 1.0: what happens to rows that cannot be used is its own affair
set -euo pipefail
export NPROC_PER_NODE=4
# shellcheck disable=SC2016,SC1003 # names stay in single quotes
exec swift sft \
  --tuner_type=full \
  --dataset=/data/rows.jsonl \
  --attn_impl=sdpa \
  '--deepspeed={"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_allow_untested_optimizer": true, "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "stage3_gather_16bit_weights_on_model_save": true}}' \
  --model=Qwen/Qwen3-8B \
  --torch_dtype=bfloat16 \
  --max_length=1664 \
  --packing=false \
  --split_dataset_ratio=0.0 \
  --num_train_epochs=3.0 \
  --max_steps=-1 \
  --per_device_train_batch_size=4 \
  --gradient_accumulation_steps=1 \
  --learning_rate=2e-05 \
  --lr_scheduler_type=cosine \
  --weight_decay=0.0 \
  --max_grad_norm=1.0 \
  --optim=adamw_torch \
  --seed=42 \
  --logging_steps=1 \
  --save_steps=235 \
  --save_total_limit=2 \
  --ddp_timeout=1800 \
  --gradient_checkpointing=true \
  --adam_beta1=0.9 \
  --adam_beta2=0.999 \
  --adam_epsilon=1e-08 \
  --torch_compile=false \
  --dataloader_num_workers=0 \
  --warmup_ratio=0.03 \
  --use_hf=true \
  --output_dir=output/sft-full-8b-4x24gb-1 \
  --add_version=false
