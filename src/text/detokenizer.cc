#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace trine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Moves what is complete from the front of *bytes to the result, each faulty stretch as one U+FFFD.
std::string TakeComplete(std::string* bytes) {
  const std::string_view all = *bytes;
  std::string out;
  size_t done = 0;
  while (done < all.size()) {
    const std::string_view rest = all.substr(done);
    const auto valid = static_cast<size_t>(ValidUtf8Prefix(rest));
    out += rest.substr(0, valid);
    done += valid;
    if (valid == rest.size()) break;
    const Utf8Step step = NextUtf8(rest.substr(valid));
    if (step.kind == Utf8Step::Kind::kTruncated) break;
    out += kReplacement;
    done += static_cast<size_t>(step.length);
  }
  bytes->erase(0, done);
  return out;
}

}  // namespace

std::string Detokenizer::Next(int32_t id) {
  if (tokenizer_.Type(id) == TokenType::kControl) return {};
  std::string_view piece = tokenizer_.Piece(id);
  if (drop_space_ && !piece.empty()) {
    drop_space_ = false;
    if (piece.front() == ' ' && tokenizer_.Type(id) != TokenType::kByte) piece.remove_prefix(1);
  }
  if (pending_.empty() && ValidUtf8Prefix(piece) == static_cast<int64_t>(piece.size())) {
    return std::string(piece);  // nearly every token
  }
  pending_ += piece;
  return TakeComplete(&pending_);
}

std::string Detokenizer::Finish() {
  // TakeComplete leaves at most the beginning of one character.
  std::string rest(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return rest;
}

}  // namespace trine
