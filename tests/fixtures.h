// Where the tests find their data: small fixtures in the tree, real models in models/
// (git-ignored), without which the tests that need them are skipped, visibly.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trine {

inline std::string DataPath(const std::string& name) {
  return std::string(TRINE_TEST_DATA) + "/" + name;
}

inline std::string SmolPath() {
  const char* folder = std::getenv("TRINE_MODELS");
  return std::string(folder == nullptr ? TRINE_MODELS_DIR : folder) +
         "/SmolLM2-135M-Instruct.Q4_1.gguf";
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::vector<T> ReadArray(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(bytes.data(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}

inline nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(ReadFile(path));
}

#define TRINE_SKIP_WITHOUT_SMOL()                                                 \
  if (!std::filesystem::exists(SmolPath())) {                                     \
    GTEST_SKIP() << SmolPath() << " is absent; launcher/quickstart.sh brings it"; \
  }

}  // namespace trine
