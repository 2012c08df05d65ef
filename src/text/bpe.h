// Bpe: the tokens of one piece of text, by merging its bytes or characters. It knows no special
// token and does not cut text into pieces (pretokenizer.h, character_joins.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "src/text/merger.h"
#include "src/text/piece_list.h"

namespace trine {

// Immutable, so any thread may use it, each with a MergeScratch of its own.
class Bpe {
 public:
  // What merging begins with. Characters that are in no token are spelled in byte tokens.
  enum class Unit { kByte, kCharacter };

  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the ids of one piece (valid UTF-8 for kCharacter, below 2 GiB): the lowest rank first,
  // leftmost among equals. n log n in the length of the piece. A byte that nothing stands for gives
  // no id, but scratch->missing names it.
  void Encode(std::string_view piece, MergeScratch* scratch, std::vector<int32_t>* ids) const;

  // Whether Encode may give a token other than BPE's own: the unknown token.
  bool may_give_unknown() const { return unknown_ >= 0 && lacks_bytes_; }

 private:
  friend class BpeBuilder;

  explicit Bpe(Unit unit);

  int32_t CharacterSymbol(std::string_view character) const;
  void AddUnits(std::string_view piece, MergeScratch* scratch) const;
  void AddByte(unsigned char byte, MergeScratch* scratch) const;
  void Merge(std::string_view piece, MergeScratch* scratch, std::vector<int32_t>* ids) const;
  bool Emit(int32_t symbol, bool behind_unknown, MergeScratch* scratch,
            std::vector<int32_t>* ids) const;

  const Unit unit_;
  // Symbols are the tokens, under their ids, and behind them what only merges mention. Tokens that
  // cannot come from text are empty here.
  int64_t tokens_ = 0;
  PieceList symbols_;
  std::vector<int32_t> lengths_;  // in units; 1 for byte tokens among characters
  PieceIndex index_;              // all symbols that are not empty
  MergeTable merges_;
  int32_t byte_token_[256];
  int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool lacks_bytes_ = false;
  PieceIndex whole_;  // the tokens that merging their own units gives: most words of a text
};

// Makes a Bpe: every token in the order of ids, then merges, then Finish.
class BpeBuilder {
 public:
  explicit BpeBuilder(Bpe::Unit unit);

  // The next id. Empty: it cannot come from text. An error names two tokens that are equal.
  Status AddToken(std::string_view bytes);

  // Among characters: the token (added as empty) that stands for a byte where nothing else does.
  void SetByteToken(unsigned char byte, int32_t id);

  // What stands for a byte without a token; -1 (from the start): nothing does. `fuse`: once for
  // several in a row.
  void SetUnknown(int32_t id, bool fuse);

  // Whether all 256 bytes have a token; so far.
  bool HasAllBytes() const;

  // Ranks are >= 0, lower ones merge first. Of equal pairs the one added first counts.
  void AddMerge(std::string_view left, std::string_view right, int32_t rank);

  // Two symbols merge wherever they make a token together; ranks[id] is the rank of that.
  void AddMergesOfTokens(const std::vector<int32_t>& ranks);

  // `ignore_merges`: a piece that is a token is that token, merges or not.
  std::unique_ptr<const Bpe> Finish(bool ignore_merges);

 private:
  int32_t SymbolOf(std::string_view bytes);
  int32_t Append(std::string_view bytes);

  std::unique_ptr<Bpe> bpe_;
};

}  // namespace trine
