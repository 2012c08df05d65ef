#include "src/core/text_file.h"

#include "src/core/file.h"

namespace trine {

Result<std::string> ReadTextFile(const std::string& path, int64_t most) {
  TRINE_ASSIGN(const File file, File::Open(path));
  if (file.size() > most) {
    return BadInput(path + " is " + std::to_string(file.size()) + " bytes long; at most " +
                    std::to_string(most) + " are supported");
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  TRINE_RETURN_IF_ERROR(file.Read(0, file.size(), reinterpret_cast<std::byte*>(text.data())));
  return text;
}

}  // namespace trine
