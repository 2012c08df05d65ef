#!/usr/bin/env bash
# Builds a fuzz target with clang and runs it, beginning with its corpus:
#   tests/fuzz/run.sh TARGET SECONDS [FOLDER]
# TARGET: gguf, hugging_face, tokenizer or tokenizer_json. FOLDER (build-fuzz/TARGET) keeps what is found: inputs
# that reach new code and, as crash-*, timeout-* or oom-*, those that fail. It needs the packages
# clang and libclang-rt-14-dev; the instruction-set units stay out, for want of their flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$1
seconds=$2
found=${3:-build-fuzz/$target}
objects=build-fuzz/objects
mkdir -p "$found" "$objects"

flags=(-std=c++20 -O2 -g -I. -DTRINE_TEST_DATA="\"$PWD/tests/data\"" -ffunction-sections
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -MMD)
sources=(kernels/*.cc kernels/cpu/*.cc comm/self.cc comm/control.cc src/core/*.cc src/text/*.cc
  src/weights/*.cc src/models/*.cc src/convert/conversion.cc src/convert/row_converter.cc
  "tests/fuzz/fuzz_$target.cc")

# An object is made again if a file that it was made from is younger.
compile() {
  local source=$1 object
  object=$objects/${source//\//_}.o
  if [[ -f $object ]] && ! tr -d '\\' <"${object%.o}.d" | tr ' ' '\n' | sed 's/:$//' |
    { while read -r file; do [[ ! $file -nt $object ]] || exit 1; done; }; then
    rm -f "$object"
  fi
  [[ -f $object ]] || "${CXX:-clang++}" "${@:2}" -c "$source" -o "$object"
}
export -f compile
export objects
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -ec 'compile "$@"' _ {} "${flags[@]}"
linked=()
for source in "${sources[@]}"; do linked+=("$objects/${source//\//_}.o"); done
"${CXX:-clang++}" -fsanitize=fuzzer,address,undefined -Wl,--gc-sections "${linked[@]}" \
  -lpcre2-8 -lutf8proc -lcrypto -lpthread -o "build-fuzz/fuzz_$target"

options=()
dictionary=tests/fuzz/$target.dict
[[ ! -f $dictionary ]] || options+=("-dict=$dictionary")
seeds=tests/fuzz/corpus/$target
[[ -d $seeds ]] || seeds=
exec "build-fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
  -artifact_prefix="$found/" "${options[@]}" "$found" ${seeds:+"$seeds"}
