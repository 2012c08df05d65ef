// Byte-level BPE: the tokens of one piece of text, by merging neighbours in the order of a merge
// list. It knows no special token and no pre-tokeniser (pretokenizer.h); tokenizer.cc joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "src/text/piece_list.h"

namespace trine {

// Neighbouring symbols -> the merge that joins them.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;  // kNoRank: the two do not merge
    int32_t symbol = -1;      // what they become
  };

  explicit MergeTable(int64_t merges);

  Merge Find(int32_t left, int32_t right) const;

  // The first of equal pairs stays. At most as many as announced.
  void Insert(int32_t left, int32_t right, Merge merge);

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;  // kNoRank: free
  };

  size_t Probe(uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

// Immutable after creation, so any thread may use it, each with a Scratch of its own.
class Bpe {
 public:
  // `tokens` and `merges` as byte-level vocabularies write them ("Ġthe", "Ġ t"); the id of a token
  // is its index, the rank of a merge too. mergeable[id]: the token can come from text; special
  // tokens must not. `ignore_merges`: a piece that is a token is that token, merges or not. An
  // error names the merge that does not parse, or two mergeable tokens that are equal.
  static Result<std::unique_ptr<Bpe>> Create(const std::vector<std::string>& tokens,
                                             const std::vector<bool>& mergeable,
                                             const std::vector<std::string>& merges,
                                             bool ignore_merges);

  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  struct Node {
    int32_t symbol;
    int32_t next, previous;   // indices; -1: none. Long pieces only
    MergeTable::Merge merge;  // with the next symbol
  };
  // Memory that calls of Encode reuse.
  struct Scratch {
    std::vector<Node> nodes;
    std::vector<uint64_t> heap;
  };

  // Appends the ids of one piece (below 2 GiB): the lowest rank first, leftmost among equals. Bytes
  // that the vocabulary has no token for give none. n log n in the length of the piece.
  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  Bpe(int64_t tokens, int64_t merges);

  Status AddTokens(const std::vector<std::string>& tokens, const std::vector<bool>& mergeable,
                   PieceIndex* symbol_index);
  Status AddMerges(const std::vector<std::string>& merges, PieceIndex* symbol_index);
  int32_t SymbolOf(std::string_view bytes, PieceIndex* symbol_index);
  void FindWholeTokens(bool ignore_merges);
  void Merge(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;
  void MergeShort(std::vector<Node>* nodes) const;
  void MergeLong(Scratch* scratch) const;
  void Emit(int32_t symbol, std::vector<int32_t>* ids) const;

  // Symbols are the tokens, under their ids, and behind them what only merges mention. Tokens that
  // are not mergeable are empty here.
  int64_t tokens_;
  PieceList symbols_;
  MergeTable merges_;
  int32_t byte_token_[256];
  PieceIndex whole_;  // the tokens that merging their own bytes gives: most words of a text
};

}  // namespace trine
