#!/usr/bin/env bash
# From a fresh clone to an answer from SmolLM2-135M on two MPI ranks: installs missing packages,
# builds, fetches the model once, runs.
#   bash launcher/quickstart.sh [PROMPT...]
# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

main() {
  local prompt=${*:-Explain in two sentences why the sky is blue.}
  local model=$models/$model_name tokens=200 temperature=0 new=()
  install_packages "${build_packages[@]}"
  [[ -f build/compile_commands.json ]] || new=(-DTRINE_TESTS=OFF)
  say "building build/trine"
  configure "${new[@]}"
  cmake --build build --target trine
  check_nvidia

  if fetch_model; then
    prompt=$'<|im_start|>user\n'$prompt$'<|im_end|>\n<|im_start|>assistant\n'
  else
    model=tests/data/demo/demo-PTQ1_0.gguf tokens=80 temperature=0.8 prompt=${*:-Emma was}
    say "SmolLM2 could not be fetched (no network?); taking the demo model $model instead:" \
      "ternary, rotated and tiny. It goes on with a text, here \"$prompt\", and knows nothing"
  fi
  allow_root
  run_trine 2 build/two.logits "$model" "$prompt" "$tokens" "$temperature"
  run_trine 1 build/one.logits "$model" "$prompt" "$tokens" "$temperature" >build/one.log 2>&1 ||
    fail "on one rank:" "$(<build/one.log)"
  cmp build/two.logits build/one.logits || fail "one rank and two ranks differ"
  printf '\n'
  say "one rank gives the same: all $(stat -c %s build/two.logits) bytes of logits are equal"
  rm -f build/{one,two}.logits build/one.log
  say "done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
}

# run_trine RANKS LOGITS MODEL PROMPT TOKENS TEMPERATURE
run_trine() {
  local command=(mpirun -np "$1" --oversubscribe --bind-to none build/trine run -m "$3"
    --temp "$6" --seed 1 -n "$5" --no-escape -p "$4" --save-logits "$2")
  printf '\n$ '
  if is_root; then printf 'OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 '; fi
  printf '%q ' "${command[@]}"
  printf '\n'
  "${command[@]}" </dev/null
}

# ---- NVIDIA GPUs: nobody who has one ends up on the CPU unknowingly ----

gpu_root=${TRINE_GPU_ROOT:-} # the tests put a tree of their own here

check_nvidia() {
  has_gpu || return 0
  local driver toolkit nccl cuda=12 driver_floor=525 sudo='' commands=()
  driver=$(driver_version)
  toolkit=$(toolkit_version)
  nccl=$(nccl_version)
  if at_least "$toolkit" 13; then cuda=13 driver_floor=580; fi
  is_root || sudo='sudo '

  say "this machine has an NVIDIA GPU"
  if lacks driver "$driver" "$driver_floor" '(525 for CUDA 12, 580 for CUDA 13)'; then
    commands+=("${sudo}apt-get install -y linux-headers-\$(uname -r) nvidia-open  # then reboot")
  fi
  if lacks 'CUDA toolkit' "$toolkit" 12.0 '(nvcc)'; then
    commands+=("${sudo}apt-get install -y cuda-toolkit-12-9")
  fi
  if lacks NCCL "$nccl" 2.18 '(nccl.h and libnccl.so)'; then
    commands+=("${sudo}apt-get install -y 'libnccl2=*+cuda$cuda.*' 'libnccl-dev=*+cuda$cuda.*'")
  fi
  if ((${#commands[@]} > 0)); then print_commands "$sudo" "${commands[@]}"; fi
  say "this version of Trine runs CPU ranks only (the CUDA backend is not part of it yet):" \
    "carrying on with CPU ranks"
}

has_gpu() {
  local device
  for device in "$gpu_root"/sys/bus/pci/devices/*; do
    if grep -qs 0x10de "$device/vendor" && grep -qs '^0x03' "$device/class"; then return 0; fi
  done
  [[ -e $gpu_root/proc/driver/nvidia/version || -x $gpu_root/usr/lib/wsl/lib/nvidia-smi ]]
}

# driver_version, toolkit_version, nccl_version: nothing where there is none.
driver_version() {
  local smi
  if [[ -e $gpu_root/proc/driver/nvidia/version ]]; then
    grep NVRM "$gpu_root/proc/driver/nvidia/version" | grep -oE -m1 '[0-9]{3,}\.[0-9.]+'
  elif smi=$(find_program nvidia-smi); then
    "$smi" --query-gpu=driver_version --format=csv,noheader | grep -m1 -E '^[0-9.]+$'
  fi || true
}

toolkit_version() {
  local nvcc
  if nvcc=$(find_program nvcc); then
    "$nvcc" --version | sed -nE 's/.*release ([0-9.]+).*/\1/p'
  fi
}

nccl_version() {
  local header library home=$gpu_root${NCCL_HOME:-/usr/local} usr=$gpu_root/usr
  for header in {"$usr","$usr"/local/cuda,"$home"}/include/nccl.h; do
    for library in {"$usr"/lib/*-linux-gnu,"$usr"/local/cuda/lib64,"$home"/lib}/libnccl.so; do
      [[ -e $header && -e $library ]] || continue
      awk '$2 == "NCCL_MAJOR" {major = $3} $2 == "NCCL_MINOR" {minor = $3}
        END {print major "." minor}' "$header"
      return
    done
  done
}

# Its path: installing CUDA does not put its programs on PATH.
find_program() {
  local folder
  if [[ -z $gpu_root ]] && command -v "$1"; then return; fi
  for folder in "$gpu_root"/usr/{bin,local/cuda/bin,local/cuda-*/bin,lib/wsl/lib}; do
    [[ -x $folder/$1 ]] || continue
    echo "$folder/$1"
    return
  done
  return 1
}

# at_least VERSION FLOOR
at_least() { [[ -n $1 && $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# lacks NAME VERSION FLOOR NOTE: true, and says so, where it is missing or too old.
lacks() {
  if at_least "$2" "$3"; then return 1; fi
  printf '   %-13s %s; %s or newer is needed %s\n' "$1:" "${2:-not found}" "$3" "$4"
}

os_release() {
  sed -nE "s/^$1=\"?([^\"]*)\"?$/\1/p" "$gpu_root/etc/os-release" 2>/dev/null || true
}

# print_commands SUDO COMMAND...: all of them need NVIDIA's package repository first.
print_commands() {
  local sudo=$1 system machine=x86_64 keyring=cuda-keyring_1.1-1_all.deb
  local nvidia=https://developer.download.nvidia.com/compute/cuda/repos
  shift
  system=$(os_release ID)$(os_release VERSION_ID)
  system=${system//./}
  if [[ ! $system =~ ^(debian12|ubuntu2204|ubuntu2404)$ ]]; then
    echo "   to install: see NVIDIA's guides for the driver, CUDA and NCCL on this system"
    return
  fi
  [[ $(uname -m) == x86_64 ]] || machine=sbsa
  echo "   to install:"
  if [[ $system == debian12 ]]; then # the driver needs a package from contrib
    printf '     %s\n' "${sudo}apt-get install -y software-properties-common" \
      "${sudo}add-apt-repository -y contrib"
  fi
  printf '     %s\n' "${sudo}apt-get update && ${sudo}apt-get install -y wget" \
    "wget $nvidia/$system/$machine/$keyring" \
    "${sudo}dpkg -i $keyring && ${sudo}apt-get update" "$@"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
