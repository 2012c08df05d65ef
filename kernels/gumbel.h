// The noise of sampling, keyed so that a draw depends on nothing else.
#pragma once

#include <cstdint>

namespace trine {

// Standard Gumbel noise of one token of one draw: -ln(-ln(u)), u from a hash of the arguments. The
// same on every machine: own logarithm, no platform library. (Gumbel-max: Gumbel 1954.)
double GumbelNoise(uint64_t seed, int32_t position, int32_t token);

}  // namespace trine
