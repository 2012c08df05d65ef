// How SentencePiece's BPE writes its tokens, and its scores as the merges that tokenizer.json lists
// instead.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "src/text/utf8.h"

namespace trine {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space

// Of a normal token: finding all ways to make it of two takes the square of its length.
constexpr size_t kMaxPieceBytes = 256;

// The byte that a byte token ("<0x0A>") stands for; -1 if it is not of this form.
int ByteOfToken(std::string_view text);

// The two halves of a token.
struct Merge {
  std::string_view left, right;
};

// Every way to make the token `text` (valid UTF-8) of two parts that `is_token` knows, the longest
// left part first: the order in which Hugging Face's converter lists them.
template <typename IsToken>
std::vector<Merge> MergesOfToken(std::string_view text, const IsToken& is_token) {
  std::vector<Merge> merges;
  for (size_t at = text.size(); at-- > 1;) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;  // inside a character
    const Merge merge = {text.substr(0, at), text.substr(at)};
    if (is_token(merge.left) && is_token(merge.right)) merges.push_back(merge);
  }
  return merges;
}

// The first character of `text` that is no token by itself; empty if all are.
template <typename IsToken>
std::string_view LackingCharacter(std::string_view text, const IsToken& is_token) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    DecodeUtf8(text, &at);
    const std::string_view character = text.substr(begin, at - begin);
    if (!is_token(character)) return character;
  }
  return {};
}

}  // namespace trine
