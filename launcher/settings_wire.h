// Settings as a message, so that every rank runs with rank 0's: hosts may differ in environment
// variables and in what --config holds.
#pragma once

#include "comm/control.h"
#include "src/core/settings.h"

namespace trine {

Bytes EncodeSettings(const Settings& settings);
Settings DecodeSettings(const Bytes& message);

}  // namespace trine
