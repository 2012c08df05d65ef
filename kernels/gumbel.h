// The noise of sampling, keyed so that a draw depends on nothing else.
#pragma once

#include <cstdint>

namespace trine {

// Standard Gumbel noise of one token of one draw: -ln(-ln(u)), u from a hash of the arguments. The
// same on every machine: own logarithm, no platform library. choice: which of several texts of one
// seed it is for, from 0. (Gumbel-max: Gumbel 1954.)
double GumbelNoise(uint64_t seed, int32_t choice, int32_t position, int32_t token);

}  // namespace trine
