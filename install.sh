#!/usr/bin/env bash
# Turns a fresh machine into one that trains: its own environment, the fitting torch build, tested versions.
set -euo pipefail
usage="Usage: ./install.sh [option…] [word…]
  ./install.sh           install, and say what to type next
  ./install.sh demo      install, then run 'tunewright demo'; other words go to tunewright as well
  ./install.sh test      install, then run the tests; further words go to pytest
Options, before the words; the choice of torch is remembered:
  --torch-index URL      take torch from this index; 'auto' chooses for this machine again
  --reuse-torch          use the torch that this machine's Python already has
  --no-torch             plan and watch only; nothing that trains
  --dev                  also what tests and linters need
TUNEWRIGHT_HOME=/other/disk ./install.sh   keeps environment, caches and runs there."
torch_version=2.13.0 # what constraints.txt was tested with
torch_wheels=https://download.pytorch.org/whl
machine_root="" # where /dev, /proc, /sys and /etc begin; the tests point it at made-up machines
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${TUNEWRIGHT_HOME:-$here}/.venv
unfinished=$venv.unfinished # a folder that is there while the environment is not to be trusted

in_language() { printf '%s' "$1"; } # ENGLISH… → the same in the reader's language; sourced for Chinese
language=${TUNEWRIGHT_LANG:-${LANGUAGE:-${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}}}
# shellcheck source=/dev/null
if [[ $language == zh* && -r $here/wizard/locale/install.zh.sh ]]; then . "$here/wizard/locale/install.zh.sh"; fi
words() { # FORMAT VALUE…
  # shellcheck disable=SC2059
  printf -- "$(in_language "$1")" "${@:2}"
}
say() { printf '» %s\n' "$(words "$@")" >&2; }
fail() {
  printf 'install.sh: %s\n' "$(words "$@")" >&2
  exit 1
}
step() { # SENTENCE COMMAND…
  say '%s' "$1"
  "${@:2}" >>"$unfinished/log" 2>&1 && return
  tail -n 12 "$unfinished/log" >&2
  fail 'this did not work: %s. The lines above say why (all are in %s); put it right, then run the same command again.' "$1" "$unfinished/log"
}

# Prints the CUDA index for the OLDEST and NEWEST compute capability (75 is 7.5) under a DRIVER (major version).
torch_index_for() {
  local oldest=$1 newest=$2 driver=$3
  local cards
  cards=$(words 'cards of compute capability %s to %s' "$((oldest / 10)).$((oldest % 10))" "$((newest / 10)).$((newest % 10))")
  if ((oldest < 50)); then fail 'torch %s has no kernels for %s (5.0 is the least): take the old one out, or name a build, --torch-index URL.' "$torch_version" "$cards"; fi
  if ((driver < 525 || (newest >= 100 && driver < 570))); then fail 'NVIDIA driver %s is too old for torch %s on %s: update it to 580 or newer.' "$driver" "$torch_version" "$cards"; fi
  if ((oldest < 75 && newest >= 100)); then fail 'no one torch build serves %s: name one, --torch-index %s for the old or %s for the new.' "$cards" "$torch_wheels/cu126" "$torch_wheels/cu130"; fi
  if ((oldest >= 75 && driver >= 580)); then echo cu130; elif ((newest >= 100)); then echo cu128; else echo cu126; fi
}
nvidia_traces() { ls -d "$machine_root"/dev/nvidia[0-9]* "$machine_root"/proc/driver/nvidia/version "$machine_root"/usr/lib/wsl/lib/nvidia-smi 2>/dev/null || true; }
# Prints the torch build for this machine: cu…, rocm…, npu or cpu. A driver that does not answer never means cpu.
torch_build() {
  local cards capabilities
  if ldd --version 2>&1 | grep -qi musl; then fail 'torch has no build for musl (Alpine): use a Debian, Ubuntu or Fedora image, or --no-torch.'; fi
  if [[ -n $(nvidia_traces) ]]; then
    cards=$(PATH=$PATH:/usr/lib/wsl/lib nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>&1) || cards=$(words 'it says: %s' "$cards")
    [[ $cards =~ ^[0-9]+\.[0-9.]+,\ [0-9]+\.[0-9] ]] || fail 'there is an NVIDIA driver, but nvidia-smi does not list the cards (%s): reboot or update the driver (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility), or name a build, --torch-index %s.' "${cards//$'\n'/ }" "$torch_wheels/cu130"
    capabilities=$(sed -nE 's/.*, *([0-9]+)\.([0-9]).*/\1\2/p' <<<"$cards" | sort -n)
    torch_index_for "${capabilities%%$'\n'*}" "${capabilities##*$'\n'}" "${cards%%.*}"
  elif [[ -e $machine_root/dev/kfd ]]; then echo rocm7.2
  elif [[ -e $machine_root/dev/davinci0 ]]; then echo npu
  else
    ! grep -qsx 0x10de "$machine_root"/sys/bus/pci/devices/*/vendor || say 'An NVIDIA card is on the bus but no driver reaches it: taking the CPU build. Run this again once there is a driver.'
    echo cpu
  fi
}

# Prints the one command that brings Python to this operating system.
python_command() {
  local sudo="" ID="" ID_LIKE="" VERSION_ID=""
  ((EUID == 0)) || sudo="sudo "
  # shellcheck source=/dev/null
  [[ ! -r $machine_root/etc/os-release ]] || . "$machine_root/etc/os-release"
  case "$(uname) $ID$VERSION_ID $ID $ID_LIKE " in
    Darwin*) echo "brew install python@3.13" ;;
    *" ubuntu22.04 "*) echo "${sudo}apt-get install -y python3.11 python3.11-venv" ;;
    *" debian "*) echo "${sudo}apt-get install -y python3 python3-venv" ;;
    *" fedora "*) echo "${sudo}dnf install -y python3.11" ;;
    *suse*) echo "${sudo}zypper install -y python311" ;;
    *" arch "*) echo "${sudo}pacman -S --noconfirm python" ;;
    *" alpine "*) echo "${sudo}apk add python3" ;;
    *) echo "conda create -y -n python3.12 python=3.12 && conda activate python3.12" ;;
  esac
}
# Prints a Python ≥ 3.11 that can make environments: one of this machine's, else one that conda or uv puts beside ours.
find_python() {
  local name lacking="" needed="import sys; assert sys.version_info >= (3, 11)"
  [[ $choice != reuse ]] || needed+="; import torch"
  for name in python3.13 python3.12 python3.11 python3 python; do
    if "$name" -c "$needed; import ensurepip; print(sys.executable)" 2>/dev/null; then return; fi
    lacking=${lacking:-$("$name" -c "$needed; print('python%d.%d-venv' % sys.version_info[:2])" 2>/dev/null || true)}
  done
  if [[ $choice == reuse && -z $lacking ]]; then fail 'no Python ≥ 3.11 here has a torch to reuse: leave out --reuse-torch.'; fi
  if [[ $choice != reuse ]] && command -v conda >/dev/null; then
    step "$(words 'Making a Python 3.12 with conda in %s' "$venv.python")" conda create -y -q -p "$venv.python" python=3.12
    echo "$venv.python/bin/python"
  elif [[ $choice != reuse ]] && command -v uv >/dev/null; then
    export UV_PYTHON_INSTALL_DIR=$venv.python
    step "$(words 'Fetching a Python 3.12 with uv into %s' "$venv.python")" uv python install 3.12
    uv python find --managed-python 3.12
  elif [[ -n $lacking ]]; then fail 'the Python here cannot make environments: install its package %s (on Debian and Ubuntu: apt-get install -y %s), then run this again.' "$lacking" "$lacking"
  else fail 'Python 3.11 or newer is needed and not here; run this, then the same command again:  %s' "$(python_command)"; fi
}

pip() { step "$1" "$venv/bin/python" -m pip --no-input --disable-pip-version-check install --progress-bar off "${@:2}"; }
try() { step "$1" "$venv/bin/python" -c "import sys, torch; $2"; }
answers() { "$venv/bin/python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1/torch/" 2>/dev/null; }
# torch from PyTorch's index where that answers; the ordinary index has the CPU and the CUDA 13 build as well.
install_torch() {
  local version="==$torch_version" index=$torch_wheels/$choice
  case $choice in
    none) return ;;
    reuse) try "$(words 'Trying the torch that is here')" 'torch.__version__ >= "2.9" or sys.exit(f"torch {torch.__version__} is too old, 2.9 is needed: leave out --reuse-torch")' && return ;;
    index=*) version=">=2.9,<=$torch_version" index=${choice#index=} ;;
    cu128) version="==2.11.*" ;; # the last one built for CUDA 12.8
    npu) index=$torch_wheels/cpu ;;
  esac
  if [[ $index != http* ]] || answers "$index"; then
    pip "$(words 'Installing torch from %s' "$index")" --no-deps --index-url "$index" "torch$version"
    more_wheels=(--extra-index-url "$index")
  elif [[ $choice =~ ^(cpu|npu|cu130)$ ]]; then pip "$(words 'Installing torch from the ordinary index (%s does not answer)' "$index")" --no-deps "torch$version"
  else fail '%s does not answer, and torch for this machine is taken from there: check the address and the network, or name a mirror, --torch-index URL.' "$index"; fi
}
# Prints what else this machine can use, as extras of pyproject.toml; says what it leaves out.
extras() {
  local names=train
  if [[ $choice == none ]]; then names="" && say 'Leaving out torch and all that trains.'; else
    if [[ $choice != npu && $(uname -sm) =~ ^Linux\ (x86_64|aarch64)$ ]]; then names+=,quantized; else say 'Leaving out bitsandbytes (QLoRA): it has no backend for this machine.'; fi
    if [[ $(uname) == Linux ]] && command -v g++ >/dev/null; then names+=,deepspeed; else say 'Leaving out DeepSpeed (ZeRO, offload): it builds parts of itself with g++, which is not here.'; fi
  fi
  names+=${dev:+,dev}
  [[ -z $names ]] || echo "[${names#,}]"
}

recorded() { sed -n "$1p" "$venv/installed" 2>/dev/null || true; } # 1 fingerprint, 2 what was asked, 3 choice of torch and place, 4 dev
fingerprint() { { cat "$here"/{install.sh,pyproject.toml,constraints.txt} && echo "$here $venv $asked" && nvidia_traces && cat "$machine_root/proc/driver/nvidia/version" || true; } 2>/dev/null | cksum; }
install() {
  local python before choice=$asked more_wheels=() site=()
  if [[ $asked == auto ]]; then choice=$(torch_build); fi
  if [[ -e $venv && ! -e $venv/pyvenv.cfg && ! -d $unfinished ]]; then fail '%s is in the way and is no Python environment: move it, then run this again.' "$venv"; fi
  before=$(recorded 3)
  if [[ ! -x $venv/bin/python || ${before:-$choice $venv} != "$choice $venv" ]] || ! mkdir -p "$(dirname "$venv")" || ! mkdir "$unfinished" 2>/dev/null; then
    mkdir -p "$unfinished"
    python=$(find_python)
    if [[ $choice == reuse ]]; then site=(--system-site-packages); fi
    step "$(words 'Making the environment %s with %s' "$venv" "$python")" "$python" -m venv --clear ${site[@]+"${site[@]}"} "$venv"
  fi
  echo "$asked" >"$unfinished/asked"
  install_torch
  grep -v '^torch==' "$here/constraints.txt" >"$venv/constraints.txt"
  [[ $choice == none ]] || "$venv/bin/python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >>"$venv/constraints.txt"
  if [[ $choice == npu ]]; then pip "$(words 'Installing torch-npu')" -c "$venv/constraints.txt" "torch-npu==$torch_version"; fi
  pip "$(words 'Installing Tunewright and what it needs, in the tested versions')" ${more_wheels[@]+"${more_wheels[@]}"} -c "$venv/constraints.txt" -e "$here$(extras)"
  if [[ $choice =~ ^(cu|rocm) ]]; then try "$(words 'Trying torch on the cards')" 'torch.cuda.is_available() or sys.exit("torch does not reach the cards: is the driver newer than its kernel module (then reboot)?")'
  elif [[ $choice != none ]]; then try "$(words 'Trying torch')" 'torch.ones(2).sum()'; fi
  printf '%s\n' "$(fingerprint)" "$asked" "$choice $venv" "$dev" >"$venv/installed"
  rm -r "$unfinished"
}
main() {
  asked="" dev=""
  while [[ ${1:-} == -* ]]; do
    case $1 in
      --torch-index) [[ -n ${2:-} ]] || fail '--torch-index needs a URL after it.' && asked=index=$2 && shift ;;
      --reuse-torch) asked=reuse ;;
      --no-torch) asked=none ;;
      --dev) dev=yes ;;
      -h | --help) in_language "$usage" && echo && exit ;;
      *) fail 'there is no option %s: ./install.sh --help lists them.' "$1" ;;
    esac
    shift
  done
  if [[ ${1:-} == test ]]; then dev=yes; fi
  asked=${asked:-$(cat "$unfinished/asked" 2>/dev/null || recorded 2)}
  if [[ ${asked:-index=auto} == index=auto ]]; then asked=auto; fi
  if [[ ! -x $venv/bin/tunewright || -d $unfinished || $(recorded 1) != "$(fingerprint)" || ($dev && ! $(recorded 4)) ]]; then
    [[ -z ${TUNEWRIGHT_HOME:-} ]] || export PIP_CACHE_DIR=$TUNEWRIGHT_HOME/cache/pip
    dev=${dev:-$(recorded 4)}
    install
  fi
  case ${1:-} in
    "") words 'Installed in %s\nNext, a whole fine-tune in minutes:  ./install.sh demo\nYour own:  %s/bin/tunewright\n' "$venv" "$venv" ;;
    test) cd "$here" && exec "$venv/bin/python" -m pytest -m "engine or not engine" "${@:2}" ;;
    *) exec "$venv/bin/tunewright" "$@" ;;
  esac
}
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
