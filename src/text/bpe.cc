#include "src/text/bpe.h"

#include <algorithm>

#include "src/core/quote.h"
#include "src/text/utf8.h"

namespace trine {

Bpe::Bpe(Unit unit) : unit_(unit), index_(symbols_), whole_(symbols_) {
  std::fill(std::begin(byte_token_), std::end(byte_token_), -1);
}

void Bpe::Encode(std::string_view piece, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  const int32_t whole = whole_.Find(piece);
  if (whole >= 0) return ids->push_back(whole);
  Merge(piece, scratch, ids);
}

void Bpe::Merge(std::string_view piece, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  scratch->symbols.clear();
  AddUnits(piece, scratch);
  MergeAll(merges_, lengths_, scratch);
  bool unknown = false;
  for (const int32_t symbol : scratch->symbols) unknown = Emit(symbol, unknown, scratch, ids);
}

void Bpe::AddUnits(std::string_view piece, MergeScratch* scratch) const {
  scratch->symbols.reserve(piece.size());
  if (unit_ == Unit::kByte) {
    for (const char c : piece) AddByte(static_cast<unsigned char>(c), scratch);
    return;
  }
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    DecodeUtf8(piece, &at);
    const std::string_view character = piece.substr(begin, at - begin);
    const int32_t symbol = index_.Find(character);
    if (symbol >= 0) {
      scratch->symbols.push_back(symbol);
    } else {
      for (const char c : character) AddByte(static_cast<unsigned char>(c), scratch);
    }
  }
}

void Bpe::AddByte(unsigned char byte, MergeScratch* scratch) const {
  const int32_t token = byte_token_[byte];
  if (token >= 0) return scratch->symbols.push_back(token);
  if (unknown_ < 0) {
    scratch->missing.set(byte);
    return;
  }
  // The unknown symbol: it merges with none.
  scratch->symbols.push_back(static_cast<int32_t>(tokens_));
}

// `behind_unknown`: the last id is the unknown token. Whether it is now.
bool Bpe::Emit(int32_t symbol, bool behind_unknown, MergeScratch* scratch,
               std::vector<int32_t>* ids) const {
  if (symbol < tokens_) {
    ids->push_back(symbol);
    return false;
  }
  const auto emit_unknown = [&] {
    if (unknown_ < 0) return;
    if (!behind_unknown || !fuse_unknown_) ids->push_back(unknown_);
    behind_unknown = true;
  };
  if (symbol == tokens_) emit_unknown();
  for (const char c : symbols_[symbol]) {
    const auto byte = static_cast<unsigned char>(c);
    const int32_t token = byte_token_[byte];
    if (token < 0) {
      if (unknown_ < 0) scratch->missing.set(byte);
      emit_unknown();
    } else {
      ids->push_back(token);
      behind_unknown = false;
    }
  }
  return behind_unknown;
}

BpeBuilder::BpeBuilder(Bpe::Unit unit) : bpe_(new Bpe(unit)) {}

Status BpeBuilder::AddToken(std::string_view bytes) {
  const int32_t id = Append(bytes);
  bpe_->tokens_ = id + 1;
  if (bytes.empty()) return {};
  const int32_t other = bpe_->index_.Insert(id);
  if (other >= 0) {
    return BadInput("tokens " + std::to_string(other) + " and " + std::to_string(id) +
                    " are both " + Quote(bytes) + "; the vocabulary is damaged, convert it again");
  }
  if (bpe_->unit_ == Bpe::Unit::kByte && bytes.size() == 1) {
    bpe_->byte_token_[static_cast<unsigned char>(bytes[0])] = id;
  }
  return {};
}

void BpeBuilder::SetByteToken(unsigned char byte, int32_t id) {
  bpe_->byte_token_[byte] = id;
}

void BpeBuilder::SetUnknown(int32_t id, bool fuse) {
  bpe_->unknown_ = id;
  bpe_->fuse_unknown_ = fuse;
}

bool BpeBuilder::HasAllBytes() const {
  return std::count(std::begin(bpe_->byte_token_), std::end(bpe_->byte_token_), -1) == 0;
}

int32_t BpeBuilder::Append(std::string_view bytes) {
  int32_t length = static_cast<int32_t>(bytes.size());
  if (bpe_->unit_ == Bpe::Unit::kCharacter) {
    length = static_cast<int32_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }
  bpe_->symbols_.Append(bytes);
  bpe_->lengths_.push_back(std::max(length, 1));
  return static_cast<int32_t>(bpe_->symbols_.size() - 1);
}

int32_t BpeBuilder::SymbolOf(std::string_view bytes) {
  // The first symbol behind the tokens is the unknown one's.
  if (bpe_->symbols_.size() == bpe_->tokens_) Append({});
  const int32_t symbol = bpe_->index_.Find(bytes);
  if (symbol >= 0) return symbol;
  const int32_t added = Append(bytes);
  bpe_->index_.Insert(added);
  return added;
}

void BpeBuilder::AddMerge(std::string_view left, std::string_view right, int32_t rank) {
  const int32_t left_symbol = SymbolOf(left);
  const int32_t right_symbol = SymbolOf(right);
  const int32_t merged = SymbolOf(std::string(left).append(right));
  bpe_->merges_.Insert(left_symbol, right_symbol, {rank, merged});
}

void BpeBuilder::AddMergesOfTokens(const std::vector<int32_t>& ranks) {
  // Characters first: a merge may begin with one that is no token itself.
  const int64_t tokens = bpe_->tokens_;
  for (int64_t id = 0; id < tokens; ++id) {
    const std::string token(bpe_->symbols_[id]);
    for (size_t at = 0; at < token.size();) {
      const size_t begin = at;
      DecodeUtf8(token, &at);
      SymbolOf(std::string_view(token).substr(begin, at - begin));
    }
  }
  for (int64_t id = 0; id < tokens; ++id) {
    const std::string_view token = bpe_->symbols_[id];
    for (size_t at = 0; at < token.size();) {
      DecodeUtf8(token, &at);
      if (at == token.size()) break;
      const int32_t left = bpe_->index_.Find(token.substr(0, at));
      const int32_t right = bpe_->index_.Find(token.substr(at));
      if (left < 0 || right < 0) continue;
      bpe_->merges_.Insert(left, right, {ranks[static_cast<size_t>(id)], static_cast<int32_t>(id)});
    }
  }
}

// A token that its own units merge to is what a piece of these units becomes, so that one look-up
// replaces the merging. Vocabularies may have tokens that merging does not reach: those stay out.
std::unique_ptr<const Bpe> BpeBuilder::Finish(bool ignore_merges) {
  Bpe& bpe = *bpe_;
  if (bpe.symbols_.size() == bpe.tokens_) Append({});
  bpe.lacks_bytes_ = !HasAllBytes();
  MergeScratch scratch;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(bpe.tokens_); ++id) {
    const std::string_view bytes = bpe.symbols_[id];
    if (bytes.empty()) continue;
    if (!ignore_merges) {
      ids.clear();
      bpe.Merge(bytes, &scratch, &ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    bpe.whole_.Insert(id);
  }
  return std::move(bpe_);
}

}  // namespace trine
