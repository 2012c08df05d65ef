#include "src/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "src/text/byte_level.h"

namespace trine {
namespace {

// Up to here finding the lowest rank by looking at all is faster than a heap.
constexpr size_t kShortPiece = 48;

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A merge line is "A B", cut at the first space behind A's first character (A may not be empty).
bool ParseMerge(std::string_view line, std::string* left, std::string* right) {
  const size_t space = line.find(' ', 1);
  return space != std::string_view::npos && space + 1 < line.size() &&
         ByteLevelToBytes(line.substr(0, space), left) &&
         ByteLevelToBytes(line.substr(space + 1), right);
}

}  // namespace

MergeTable::MergeTable(int64_t merges)
    : slots_(std::bit_ceil(static_cast<size_t>(merges) * 2 + 1)) {}

size_t MergeTable::Probe(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.pair == pair || slot.merge.rank == kNoRank) return i;
  }
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[Probe(PairOf(left, right))].merge;
}

void MergeTable::Insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = PairOf(left, right);
  Slot& slot = slots_[Probe(pair)];
  if (slot.merge.rank == kNoRank) slot = {pair, merge};
}

Bpe::Bpe(int64_t tokens, int64_t merges) : tokens_(tokens), merges_(merges), whole_(symbols_) {
  std::fill(std::begin(byte_token_), std::end(byte_token_), -1);
}

Result<std::unique_ptr<Bpe>> Bpe::Create(const std::vector<std::string>& tokens,
                                         const std::vector<bool>& mergeable,
                                         const std::vector<std::string>& merges,
                                         bool ignore_merges) {
  std::unique_ptr<Bpe> bpe(
      new Bpe(static_cast<int64_t>(tokens.size()), static_cast<int64_t>(merges.size())));
  PieceIndex symbol_index(bpe->symbols_);
  TRINE_RETURN_IF_ERROR(bpe->AddTokens(tokens, mergeable, &symbol_index));
  TRINE_RETURN_IF_ERROR(bpe->AddMerges(merges, &symbol_index));
  bpe->FindWholeTokens(ignore_merges);
  return bpe;
}

Status Bpe::AddTokens(const std::vector<std::string>& tokens, const std::vector<bool>& mergeable,
                      PieceIndex* symbol_index) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string bytes;
    if (!mergeable[id] || !ByteLevelToBytes(tokens[id], &bytes) || bytes.empty()) {
      symbols_.Append({});
      continue;
    }
    symbols_.Append(bytes);
    const int32_t other = symbol_index->Insert(static_cast<int32_t>(id));
    if (other >= 0) {
      return BadInput("tokens " + std::to_string(other) + " and " + std::to_string(id) +
                      " are both '" + tokens[id] +
                      "'; the vocabulary is damaged, convert it again");
    }
    if (bytes.size() == 1) {
      byte_token_[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(id);
    }
  }
  return {};
}

int32_t Bpe::SymbolOf(std::string_view bytes, PieceIndex* symbol_index) {
  const int32_t symbol = symbol_index->Find(bytes);
  if (symbol >= 0) return symbol;
  symbols_.Append(bytes);
  const auto added = static_cast<int32_t>(symbols_.size() - 1);
  symbol_index->Insert(added);
  return added;
}

Status Bpe::AddMerges(const std::vector<std::string>& merges, PieceIndex* symbol_index) {
  std::string left;
  std::string right;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    if (!ParseMerge(merges[rank], &left, &right)) {
      return BadInput("merge " + std::to_string(rank) + " is '" + merges[rank] +
                      "', not two byte-level symbols with a space between; convert the file again");
    }
    const int32_t left_symbol = SymbolOf(left, symbol_index);
    const int32_t right_symbol = SymbolOf(right, symbol_index);
    const int32_t merged = SymbolOf(left + right, symbol_index);
    merges_.Insert(left_symbol, right_symbol, {static_cast<uint32_t>(rank), merged});
  }
  return {};
}

// A token that its own bytes merge to is what a piece of these bytes becomes, so that one look-up
// replaces the merging. Vocabularies may have tokens that merging does not reach: those stay out.
void Bpe::FindWholeTokens(bool ignore_merges) {
  Scratch scratch;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(tokens_); ++id) {
    const std::string_view bytes = symbols_[id];
    if (bytes.empty()) continue;
    if (!ignore_merges) {
      ids.clear();
      Merge(bytes, &scratch, &ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    whole_.Insert(id);
  }
}

void Bpe::Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  const int32_t whole = whole_.Find(piece);
  if (whole >= 0) return ids->push_back(whole);
  Merge(piece, scratch, ids);
}

void Bpe::Merge(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  std::vector<Node>& nodes = scratch->nodes;
  nodes.clear();
  nodes.reserve(piece.size());
  for (char c : piece) {
    // A byte without a token is left out before merging, not after: its neighbours may merge.
    const int32_t symbol = byte_token_[static_cast<unsigned char>(c)];
    if (symbol >= 0) nodes.push_back({symbol, -1, -1, {}});
  }
  for (size_t i = 1; i < nodes.size(); ++i) {
    nodes[i - 1].merge = merges_.Find(nodes[i - 1].symbol, nodes[i].symbol);
  }
  if (nodes.size() <= kShortPiece) {
    MergeShort(&nodes);
    for (const Node& node : nodes) Emit(node.symbol, ids);
    return;
  }
  MergeLong(scratch);
  for (int32_t i = 0; i >= 0; i = nodes[static_cast<size_t>(i)].next) {
    Emit(nodes[static_cast<size_t>(i)].symbol, ids);
  }
}

void Bpe::MergeShort(std::vector<Node>* nodes) const {
  const auto lower = [](const Node& a, const Node& b) { return a.merge.rank < b.merge.rank; };
  while (!nodes->empty()) {
    const auto best = std::min_element(nodes->begin(), nodes->end(), lower);  // leftmost of equals
    if (best->merge.rank == MergeTable::kNoRank) return;
    best->symbol = best->merge.symbol;
    nodes->erase(best + 1);
    const auto after = best + 1;
    best->merge =
        after == nodes->end() ? MergeTable::Merge{} : merges_.Find(best->symbol, after->symbol);
    if (best != nodes->begin()) {
      const auto before = best - 1;
      before->merge = merges_.Find(before->symbol, best->symbol);
    }
  }
}

// The symbols are a linked list, and a min-heap holds (rank, index of the left symbol) of every
// pair that merges. An entry outlives its pair: it counts only while it agrees with its node.
void Bpe::MergeLong(Scratch* scratch) const {
  std::vector<Node>& nodes = scratch->nodes;
  std::vector<uint64_t>& heap = scratch->heap;
  heap.clear();
  const auto at = [&nodes](int32_t index) -> Node& { return nodes[static_cast<size_t>(index)]; };
  const auto entry = [&](int32_t index) {
    return static_cast<uint64_t>(at(index).merge.rank) << 32 | static_cast<uint32_t>(index);
  };
  const auto pair_up = [&](int32_t left, int32_t right) {
    at(left).merge = merges_.Find(at(left).symbol, at(right).symbol);
    if (at(left).merge.rank == MergeTable::kNoRank) return;
    heap.push_back(entry(left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };

  const auto count = static_cast<int32_t>(nodes.size());
  for (int32_t i = 0; i < count; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1 < count ? i + 1 : -1;
    if (at(i).merge.rank != MergeTable::kNoRank) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t lowest = heap.back();
    heap.pop_back();
    const auto left = static_cast<int32_t>(lowest & UINT32_MAX);
    if (at(left).merge.rank != lowest >> 32) continue;
    Node& node = at(left);
    Node& gone = at(node.next);
    node.symbol = node.merge.symbol;
    node.next = gone.next;
    node.merge = {};
    gone.merge = {};
    if (node.previous >= 0) pair_up(node.previous, left);
    if (node.next < 0) continue;
    at(node.next).previous = left;
    pair_up(left, node.next);
  }
}

void Bpe::Emit(int32_t symbol, std::vector<int32_t>* ids) const {
  if (symbol < tokens_) return ids->push_back(symbol);
  for (char c : symbols_[symbol]) {
    const int32_t token = byte_token_[static_cast<unsigned char>(c)];
    if (token >= 0) ids->push_back(token);
  }
}

}  // namespace trine
