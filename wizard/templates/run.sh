#!/usr/bin/env bash
# {{title}}
# model {{model}}
# data  {{data}}
# Written by tunewright {{version}} on {{written}}. It needs that program's python, and no screen.
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
NAME={{name}}
# shellcheck disable=SC2016,SC1003
PLANNED_PYTHON={{python}}
PYTHON=${TUNEWRIGHT_PYTHON:-$PLANNED_PYTHON} # another server: TUNEWRIGHT_PYTHON=… bash run.sh

RANKS={{ranks}}        # processes on this machine, one per device
RUNGS={{rungs}}        # spec.1.toml …: the same effective batch in less memory, tried after a 71
EXACT_RUNGS={{exact_rungs}}  # of these, in order, the ones that go on with the optimizer's state as it is
ON_OOM={{on_oom}}    # after a 71: next rung, or stop
ON_HANG={{on_hang}} # after ranks hung: restart, or stop
HANG_SECONDS={{hang_seconds}} # a rank's silence, or time without a step, that counts as hung; 0 never does
MAX_RESTARTS={{max_restarts}} # times to go on from the last checkpoint after a 72 or a 76
EXACT={{exact}}        # 1: never a rung that starts the optimizer's state anew
AFTER=""
SHARE=0
THEN=()
HELD=() # open locks of the devices
TRAIN_OPTIONS=()
BEGIN_OPTIONS=(--new) # refused where checkpoints of an earlier run lie

{{environment}}

say() { printf '%s\n' "$*" >&2; }

reason="" # the last sentence of a failure, for whoever looks later
fail() { # code, sentence
  reason=$2
  say "$reason"
  exit "$1"
}

while [ $# -gt 0 ]; do
  case $1 in
    --resume) TRAIN_OPTIONS+=(--resume) BEGIN_OPTIONS=() ;;
    --smoke) TRAIN_OPTIONS+=(--smoke) BEGIN_OPTIONS=() MAX_RESTARTS=0 RUNGS=0 ;;
    --max-restarts | --hang-seconds)
      [[ ${2-} =~ ^[0-9]{1,6}$ ]] || fail 64 "$1 takes a number"
      if [ "$1" = --max-restarts ]; then MAX_RESTARTS=$2; else HANG_SECONDS=$2; fi
      shift
      ;;
    --on-oom)
      [[ ${2-} =~ ^(next|stop)$ ]] || fail 64 "--on-oom takes next or stop"
      ON_OOM=$2
      shift
      ;;
    --on-hang)
      [[ ${2-} =~ ^(restart|stop)$ ]] || fail 64 "--on-hang takes restart or stop"
      ON_HANG=$2
      shift
      ;;
    --exact) EXACT=1 ;;
    --share-devices) SHARE=1 ;;
    --after)
      [[ ${2-} == /* ]] || fail 64 "--after takes the absolute path of a run folder"
      AFTER=$2
      shift
      ;;
    --then)
      [ $# -gt 1 ] || fail 64 "--then takes a command and its arguments"
      THEN=("${@:2}")
      break
      ;;
    -h | --help) exec sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]##*/}" ;;
    *) fail 64 "unknown option $1: see --help" ;;
  esac
  shift
done
if [ "$EXACT" -eq 1 ]; then
  TRAIN_OPTIONS+=(--exact)
  [ "$RUNGS" -le "$EXACT_RUNGS" ] || RUNGS=$EXACT_RUNGS
fi

# Keeps the text it is given as a file; a file that was edited wins.
keep() {
  if [ ! -e "$1" ]; then
    { cat >"$1.part" && mv -- "$1.part" "$1"; } || {
      rm -f -- "$1.part"
      fail 73 "cannot write $1 in $PWD: is the disk full or read-only?"
    }
  elif ! cmp -s -- "$1" -; then
    say "$1 was edited after it was planned: this run follows the edited file"
  fi
}

{{specs}}

# A package named engine somewhere on PYTHONPATH would run in place of ours: -I asks the
# installation itself, the second line what this run would get.
[ -x "$PYTHON" ] || fail 70 "no python at $PYTHON: set TUNEWRIGHT_PYTHON to the one tunewright is installed in"
find_engine='import os, engine.watch; print(os.path.realpath(engine.watch.__file__))'
ours=$("$PYTHON" -I -c "$find_engine") || fail 70 "tunewright is not installed in $PYTHON"
found=$("$PYTHON" -c "$find_engine" 2>&1) || true
found=${found##*$'\n'} # the last line: an error names itself there
[ "$ours" = "$found" ] || fail 70 "a foreign engine would run in place of $ours: $found (see PYTHONPATH)"

export PATH="${PYTHON%/*}:$PATH" # ninja lies beside python; DeepSpeed compiles with it

# Codes that are not in the list above are an error of their own.
one_of_ours() { [[ $1 =~ ^(0|64|65|69|7[0-6])$ ]]; }

# Every end after `begin`, also one by a signal: the state is written, and how to go on is said.
finish() {
  local code=$?
  trap "" TERM INT HUP
  [ -z "$waiting" ] || kill -- "-$waiting" 2>/dev/null # it trains nothing yet
  if ! one_of_ours "$code"; then
    reason=${reason:-"run.sh ended with $code, which means nothing here: see logs/"}
    say "$reason"
    code=70
  fi
  "$PYTHON" -m engine.watch end --code "$code" --reason "$reason"
  if [ "$code" -eq 75 ]; then
    say "stopped; to go on: bash run.sh --resume"
  elif [ ${#THEN[@]} -gt 0 ]; then
    say "then: ${THEN[*]}"
    for lock in ${HELD[@]+"${HELD[@]}"}; do exec {lock}>&-; done # what comes then may train too
    TUNEWRIGHT_EXIT_CODE=$code "${THEN[@]}" >>logs/then.log 2>&1 </dev/null || say "it ended with $?"
  fi
  exit "$code"
}

# Ranks save at their next step; torchrun is never signalled.
ask_to_stop() {
  [ -e stop ] || say "asked to stop: it saves a checkpoint, which can take a minute, and ends with 75"
  : >stop
}

# From here on the run has an owner: launch.json says who, engine.watch writes how it ends.
attempt=$("$PYTHON" -m engine.watch begin --pid $$ ${BEGIN_OPTIONS[@]+"${BEGIN_OPTIONS[@]}"}) || {
  code=$?
  one_of_ours "$code" || fail 70 "engine.watch ended with $code before the run began"
  exit "$code"
}
rung=0
waiting="" # process group of a torchrun that was not let go on yet
trap finish EXIT
trap ask_to_stop TERM INT HUP

# Starts a command in its own process group, output to a file; $launched is its number.
launch() { # phase, command…
  local phase=$1
  shift
  mkdir -p "exit/$attempt" logs || fail 73 "cannot write in $PWD: is the folder gone, or the disk full?"
  set -m # job control gives each background job its own process group
  {
    trap : TERM INT HUP # it outlives its command, to write down how that ended
    "$@"
    echo $? >"exit/$attempt/$phase"
  } >"logs/$attempt-$phase.log" 2>&1 </dev/null &
  launched=$!
  disown "$launched" # its end is the watch's to tell, not bash's
  set +m
}

# engine.watch beside what was launched: it lives as long, even without this script; its code is
# the stage's.
attend() { # phase, ranks, process
  local phase=$1 ranks=$2 code
  say "$phase: logs/$attempt-$phase.log"
  set -m
  while :; do
    "$PYTHON" -m engine.watch stage --phase "$phase" --pid "$3" --ranks "$ranks" \
      --first-rank "$((${NODE_RANK:-0} * ranks))" --attempt "$attempt" --rung "$rung" \
      --hang-seconds "$HANG_SECONDS" </dev/null &
    while kill -0 $! 2>/dev/null; do wait $!; done # a signal only interrupts the wait
    wait $!
    code=$?
    # Above 128 the watch was killed, not the command; bash says -1 when a trap ran while the
    # watch ended. Another watch then takes over, and judges by what is left.
    [ "$code" -gt 128 ] || [ "$code" -lt 0 ] || break
  done
  set +m
  return "$code"
}

stage() { # phase, command…
  [ ! -e stop ] || return 75
  launch "$@"
  attend "$1" 0 "$launched"
}

# One run per device, whoever starts it. This script and torchrun hold the locks by having them open.
hold_devices() { # kind, visible devices
  local device file lock files opened=()
  [ -n "$2" ] || return 0
  files=$("$PYTHON" -m engine.locks files "$1" "$2" 2>>logs/preflight.log) || return
  [ -n "$files" ] || return 0
  while read -r device file; do
    exec {lock}<"$file" || return 73
    HELD+=("$lock") opened+=("$lock:$device")
  done <<<"$files"
  "$PYTHON" -m engine.locks take "${opened[@]}" 2>>logs/preflight.log
}

# One node, or with NNODES, NODE_RANK and MASTER_ADDR one of many, each with this folder.
if [ "${NNODES:-1}" -gt 1 ]; then
  NODES=(--nnodes "$NNODES" --node-rank "${NODE_RANK:?}"
    --master-addr "${MASTER_ADDR:?}" --master-port "${MASTER_PORT:-29500}")
else
  # Not by name: a machine that cannot look up its own would wait for half an hour.
  NODES=(--standalone --local-addr 127.0.0.1)
  unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT # another launcher's
fi

say "$NAME: $PWD"
[ -z "$AFTER" ] || stage waiting "$PYTHON" -m engine.watch wait "$AFTER" || exit
# The devices that spec.toml names, else as many others of their kind, and it says so.
mkdir -p logs || fail 73 "cannot write in $PWD: is the disk full or read-only?"
{{visible}}=$("$PYTHON" -m engine.preflight spec.toml --ranks "$RANKS" --nodes "${NNODES:-1}" 2>logs/preflight.log) ||
  fail $? "$(tail -n 1 logs/preflight.log)"
export {{visible}}
[ "$SHARE" -eq 1 ] || hold_devices {{kind}} "${{visible}}" || fail $? "$(tail -n 1 logs/preflight.log)"
cat logs/preflight.log >&2
if [ "${NNODES:-1}" -gt 1 ]; then
  # The interface that reaches the first machine; each machine may call its own otherwise.
  through=$("$PYTHON" -m engine.route "$MASTER_ADDR")
  if [ -n "$through" ]; then
    export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$through}
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$through}
  fi
fi

restarts=0
prepared=0
while :; do
  spec=spec.toml
  [ "$rung" -eq 0 ] || spec=spec.$rung.toml
  # torchrun loads its libraries while rows become tokens, and starts the ranks when $go is there.
  go=exit/$attempt/go
  launch training "$PYTHON" -m engine.after "$go" $$ \
    torch.distributed.run "${NODES[@]}" --nproc-per-node "$RANKS" \
    --max-restarts 0 --log-dir logs --redirects 3 \
    -m engine.train "$spec" --attempt "$attempt" --rung "$rung" ${TRAIN_OPTIONS[@]+"${TRAIN_OPTIONS[@]}"}
  waiting=$launched
  if [ "$prepared" -eq 0 ]; then
    stage fetching "$PYTHON" -m engine.fetch spec.toml || exit
    stage preparing "$PYTHON" -m engine.prepare spec.toml || exit
    prepared=1
  fi
  [ ! -e stop ] || exit 75
  : >"$go" || fail 73 "cannot write in $PWD: is the folder gone, or the disk full?"
  training=$waiting waiting=""
  attend training "$RANKS" "$training"
  code=$?
  case $code in
    71) # out of device memory: the next rung, the same effective batch in less of it
      [ "$ON_OOM" = next ] && [ "$rung" -lt "$RUNGS" ] || exit "$code"
      rung=$((rung + 1))
      ;;
    72 | 76) # host memory, or a rank or device lost: again from the last checkpoint
      [ "$restarts" -lt "$MAX_RESTARTS" ] || exit "$code"
      [ "$ON_HANG" = restart ] || [ ! -e "exit/$attempt/hung" ] || exit "$code"
      restarts=$((restarts + 1))
      ;;
    *) exit "$code" ;; # 0: done
  esac
  attempt=$((attempt + 1))
  TRAIN_OPTIONS=(--resume)
  [ "$EXACT" -eq 0 ] || TRAIN_OPTIONS+=(--exact)
done
