// From what was parsed to Settings: values checked and typed.
#pragma once

#include "launcher/cli_options.h"
#include "src/core/result.h"

namespace trine {

// Fills what `raw` holds of `settings`. Errors are of code kUsage and name the option.
Status CheckOptions(const RawOptions& raw, Settings& settings);

}  // namespace trine
