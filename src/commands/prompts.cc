#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "src/commands/commands.h"

namespace trine {

Result<std::vector<std::string>> ReadPrompts(const Settings& settings) {
  std::vector<std::string> prompts = settings.prompts;
  const std::string& path = settings.prompt_file;
  if (path.empty()) return prompts;
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(path, std::ios::binary);
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      return BadInput("--file " + path + " is a directory; give a file");
    }
    if (!file) return BadInput("--file " + path + ": cannot open it");
    text << file.rdbuf();
  }
  prompts.push_back(text.str());
  return prompts;
}

}  // namespace trine
