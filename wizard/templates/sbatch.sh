#!/usr/bin/env bash
{{directives}}
# {{title}}
# Written by tunewright {{version}} on {{written}}.
#
#   sbatch FILE                                      everything lands in a folder beside it
#   sbatch --partition=P --time=1-00:00:00 FILE      options there win over those in the file
#   sbatch FILE --resume                             goes on from the last checkpoint
#
# The folder must be on a disk that all machines share. Five minutes before its time is over the
# run saves a checkpoint and ends with 75.

set -uo pipefail
umask 077
cd -- "${SLURM_SUBMIT_DIR:-.}" || exit 73

# shellcheck disable=SC2016,SC1003 # names stay in single quotes, whatever looks like code in them
NAME={{name}}
export MASTER_ADDR=${MASTER_ADDR:-${SLURMD_NODENAME:-$(hostname)}}         # this script runs on the first machine
export MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 20000))} # two jobs on a machine do not meet

mkdir -p -- "./$NAME" || exit 73
{{launch}}

# Ranks save at their next step; nothing is signalled.
ask_to_stop() {
  for folder in "./$NAME" "./$NAME"/node-*; do
    [ ! -e "$folder/run.sh" ] || : >"$folder/stop"
  done
}
trap ask_to_stop TERM

srun bash "./$NAME/launch.sh" "$@" &
while kill -0 $! 2>/dev/null; do wait $!; done # a signal only interrupts the wait
wait $!
