#!/usr/bin/env bash
# dpo-qlora-8b-24gb-1: DPO, QLoRA r16 bf16, one device
# Not carried over:
#   max_dropped_percent = 1.0: what happens to rows that cannot be used is its own affair
set -euo pipefail
# shellcheck disable=SC2016,SC1003 # names stay in single quotes
exec swift rlhf \
  --rlhf_type=dpo \
  --tuner_type=lora \
  --quant_method=bnb \
  --quant_bits=4 \
  --target_modules=all-linear \
  --dataset=/data/rows.jsonl \
  --attn_impl=sdpa \
  --model=Qwen/Qwen3-8B \
  --torch_dtype=bfloat16 \
  --max_length=1024 \
  --packing=false \
  --lora_rank=16 \
  --lora_alpha=32 \
  --lora_dropout=0.0 \
  --split_dataset_ratio=0.0 \
  --beta=0.1 \
  --loss_type=sigmoid \
  --num_train_epochs=3.0 \
  --max_steps=-1 \
  --per_device_train_batch_size=8 \
  --gradient_accumulation_steps=2 \
  --learning_rate=5e-06 \
  --lr_scheduler_type=cosine \
  --weight_decay=0.0 \
  --max_grad_norm=1.0 \
  --optim=adamw_torch_fused \
  --seed=42 \
  --logging_steps=1 \
  --save_steps=82 \
  --save_total_limit=2 \
  --ddp_timeout=1800 \
  --gradient_checkpointing=true \
  --adam_beta1=0.9 \
  --adam_beta2=0.999 \
  --adam_epsilon=1e-08 \
  --torch_compile=false \
  --dataloader_num_workers=0 \
  --use_rslora=false \
  --use_dora=false \
  --warmup_ratio=0.03 \
  --use_hf=true \
  --output_dir=output/dpo-qlora-8b-24gb-1 \
  --add_version=false
