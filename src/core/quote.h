// Text from a file or a user, fit for one line of an error message.
#pragma once

#include <string>
#include <string_view>

namespace trine {

// In single quotes; control characters as \xNN, no more than 60 bytes.
std::string Quote(std::string_view text);

}  // namespace trine
