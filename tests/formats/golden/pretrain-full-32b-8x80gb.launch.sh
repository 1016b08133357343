#!/usr/bin/env bash
# pretrain-full-32b-8x80gb-1: Pre-training, Full bf16, ZeRO-3, optimizer on the host on 16 devices, 2 machines
# Written by tunewright X.Y.Z on 2026-01-31: it makes the run's folder where it is started, and
# starts the run that is written below.
#
#   NODE_RANK=0 MASTER_ADDR=<the first machine> bash FILE   on the first machine
#   NODE_RANK=1 MASTER_ADDR=<the first machine> bash FILE   on the second, and so on
# Model and data must be at the same paths on each; --resume needs a disk they share.
#   … --resume             goes on from the last checkpoint

set -uo pipefail
umask 077 # data and weights are their owner's business

# shellcheck disable=SC2016,SC1003 # names stay in single quotes, whatever looks like code in them
NAME=pretrain-full-32b-8x80gb-1
export NNODES=2 # machines, each with as many ranks

fail() { # code, sentence
  printf '%s\n' "$2" >&2
  exit "$1"
}

FOLDER=./$NAME
if [ "$NNODES" -gt 1 ]; then
  # Which of them this one is, and where the first one is: a scheduler says it, or whoever types.
  NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-${SKYPILOT_NODE_RANK:-}}}}
  first=${SKYPILOT_NODE_IPS:-}
  MASTER_ADDR=${MASTER_ADDR:-${first%%$'\n'*}}
  [[ $NODE_RANK =~ ^[0-9]+$ ]] && [ "$NODE_RANK" -lt "$NNODES" ] ||
    fail 64 "NODE_RANK=0 … $((NNODES - 1)) says which machine this is"
  [ -n "$MASTER_ADDR" ] || fail 64 "MASTER_ADDR=… says how the first machine is reached"
  export NODE_RANK MASTER_ADDR
  # Each machine has a folder of its own; on a shared disk their checkpoints are in one place.
  FOLDER=./$NAME/node-$NODE_RANK
  mkdir -p -- "./$NAME/node-0/checkpoints" || fail 73 "cannot make $NAME in $PWD"
fi
mkdir -p -- "$FOLDER" || fail 73 "cannot make $FOLDER in $PWD"
# What lies there is run. In a place that all may write to, another user may have been first.
for folder in "$FOLDER" "./$NAME" "./$NAME/node-0" "$FOLDER/run.sh"; do
  [ ! -e "$folder" ] || [ -O "$folder" ] ||
    fail 73 "$PWD/${folder#./} belongs to another user: start in a folder of your own"
done
cd -- "$FOLDER" || exit 73
[ -e checkpoints ] || [ "${NODE_RANK:-0}" -eq 0 ] || ln -s ../node-0/checkpoints checkpoints ||
  fail 73 "cannot write in $PWD"

# Keeps the text it is given as a file; a file that was edited wins.
keep() {
  if [ ! -e "$1" ]; then
    { cat >"$1.part" && mv -- "$1.part" "$1"; } || fail 73 "cannot write $1 in $PWD"
  elif ! cmp -s -- "$1" -; then
    printf '%s\n' "$1 was edited after it was written: this run follows the edited file" >&2
  fi
}

keep run.sh <<'END_OF_RUN'
<run.sh>
END_OF_RUN

exec bash run.sh "$@"
