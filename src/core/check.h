// TRINE_CHECK: for programmer errors only, never reachable from user input. It prints the place and
// the reason and aborts; under mpirun that ends every rank.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TRINE_CHECK(condition, reason)                                                 \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, reason); \
      std::abort();                                                                    \
    }                                                                                  \
  } while (false)
