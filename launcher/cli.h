// The command line: verbs, options, aliases. It fills Settings and runs nothing.
#pragma once

#include <string>

#include "src/core/result.h"
#include "src/core/settings.h"

namespace trine {

// Precedence: command line, then TRINE_* environment, then --config FILE (ini), then defaults.
// Unknown options, wrong types and values out of range are errors of code kUsage that name the
// option. --help and --version only fill Settings::help.
Result<Settings> ParseCommandLine(int argc, const char* const* argv);

}  // namespace trine
