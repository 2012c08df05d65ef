#include "src/core/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "src/core/check.h"

namespace trine {

Result<std::string> Sha256(const File& file) {
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

}  // namespace trine
