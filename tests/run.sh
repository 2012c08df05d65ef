#!/usr/bin/env bash
# The tests, complete on a fresh machine: installs missing packages, builds into build/, fetches
# the real model if it can, runs every test that is not labelled slow.
#   bash tests/run.sh [CTEST OPTION...]      TRINE_WERROR=ON makes warnings errors, as CI does
# shellcheck source-path=SCRIPTDIR source=../launcher/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launcher/setup.sh"

allow_root

install_packages "${build_packages[@]}" libgtest-dev
configure -DTRINE_TESTS=ON ${TRINE_WERROR:+-DTRINE_WERROR="$TRINE_WERROR"}
cmake --build build
fetch_model || say "going on without the model: the tests that need it skip themselves"

result=0
ctest --test-dir build --output-on-failure -LE slow -j 2 "$@" | tee build/ctest.log || result=$?

# ctest counts a program as passed whose single tests were skipped: its log names those of
# GoogleTest and of Python's unittest.
mapfile -t skipped < <(sed -nE -e 's/.* Test +#[0-9]+: ([^ ]+) .*\*\*\*(Skipped|Not Run).*/\1/p' \
  -e 's/^\[  SKIPPED \] ([A-Za-z0-9_/]+\.[A-Za-z0-9_/]+).*/\1/p' \
  -e 's/^(test_[A-Za-z0-9_]+) .*\.\.\. skipped .*/\1/p' \
  build/ctest.log build/Testing/Temporary/LastTest.log | sort -u)
if ((${#skipped[@]} > 0)); then say "skipped: ${skipped[*]}"; fi
exit "$result"
