#include "src/core/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "src/core/check.h"
#include "src/core/quote.h"

namespace trine {

Result<std::string> Sha256(const File& file, const std::function<void(int64_t done)>& progress) {
  constexpr int64_t kChunk = int64_t{1} << 22;
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  TRINE_CHECK(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1,
              "OpenSSL has no SHA-256");
  std::vector<std::byte> chunk(static_cast<size_t>(kChunk));
  for (int64_t at = 0; at < file.size(); at += kChunk) {
    const int64_t n = std::min(kChunk, file.size() - at);
    TRINE_RETURN_IF_ERROR(file.Read(at, n, chunk.data()));
    EVP_DigestUpdate(context.get(), chunk.data(), static_cast<size_t>(n));
    if (progress) progress(at + n);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

Result<Sha256List> ReadSha256List(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  constexpr size_t kDigits = 64;
  TRINE_ASSIGN(const File file, File::Open(path));
  if (file.size() > kMostBytes) {
    return BadInput(path + " has " + std::to_string(file.size()) +
                    " bytes, too many for a list of checksums; give one that sha256sum wrote");
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  TRINE_RETURN_IF_ERROR(file.Read(0, file.size(), reinterpret_cast<std::byte*>(text.data())));
  std::istringstream lines(text);
  Sha256List list;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    std::string hex = line.substr(0, kDigits);
    for (char& c : hex) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string rest = line.substr(hex.size());
    const bool digest =
        hex.size() == kDigits && hex.find_first_not_of("0123456789abcdef") == std::string::npos;
    const bool named = rest.size() > 2 && (rest.starts_with("  ") || rest.starts_with(" *"));
    const std::string name = named ? rest.substr(std::max<size_t>(2, rest.rfind('/') + 1)) : "";
    std::string& entry = named ? list.by_name[name] : list.alone;
    if (!digest || !(named || rest.empty()) || (!entry.empty() && entry != hex)) {
      return BadInput(path + ", line " + std::to_string(number) + ": " + Quote(line) +
                      " is no 'HEX  NAME' as sha256sum writes it, or not the first for its name");
    }
    entry = hex;
  }
  return list;
}

}  // namespace trine
