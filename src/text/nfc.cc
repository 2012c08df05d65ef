#include "src/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>

#include "src/text/utf8.h"

namespace trine {
namespace {

// Nothing below takes part in any composition as the second character, and nothing from kEnd on
// changes or combines.
constexpr char32_t kBegin = 0x300;
constexpr char32_t kEnd = 0x30000;

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

using CodePoints = std::vector<utf8proc_int32_t>;

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void Decompose(char32_t code_point, CodePoints* out) {
  utf8proc_int32_t parts[32];
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts, 32,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), nullptr);
  out->insert(out->end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
}

void Compose(CodePoints* code_points) {
  const auto count = utf8proc_normalize_utf32(
      code_points->data(), static_cast<utf8proc_ssize_t>(code_points->size()), kCompose);
  code_points->resize(static_cast<size_t>(count));
}

// Sorts each run of marks by combining class. utf8proc's own sort takes n * n for a long run.
void Reorder(CodePoints* code_points) {
  constexpr int kShift = 21;  // the class goes above the code point
  auto& all = *code_points;
  for (auto& c : all) c |= CombiningClass(c) << kShift;
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return a >> kShift < b >> kShift;
  };
  const auto is_mark = [](utf8proc_int32_t c) { return c >> kShift != 0; };
  for (auto begin = all.begin(); begin != all.end();) {
    begin = std::find_if(begin, all.end(), is_mark);
    const auto end = std::find_if_not(begin, all.end(), is_mark);
    if (!std::is_sorted(begin, end, by_class)) std::stable_sort(begin, end, by_class);
    begin = end;
  }
  for (auto& c : all) c &= (1 << kShift) - 1;
}

// A stretch on its own.
void AppendNfc(std::string_view text, std::string* out) {
  CodePoints code_points;
  code_points.reserve(static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // begins a character
  })));
  for (size_t at = 0; at < text.size();) Decompose(DecodeUtf8(text, &at), &code_points);
  Reorder(&code_points);
  Compose(&code_points);
  for (const auto c : code_points) AppendUtf8(static_cast<char32_t>(c), out);
}

}  // namespace

Nfc::Nfc() : inert_(kEnd, true) {
  for (char32_t c = 0x1161; c <= 0x11C2; ++c) inert_[c] = false;  // Hangul vowels and finals
  std::vector<std::pair<char32_t, char32_t>> firsts;              // of what decomposes
  for (char32_t c = kBegin; c < kEnd; ++c) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    const auto code_point = static_cast<utf8proc_int32_t>(c);
    if (surrogate || !utf8proc_codepoint_valid(code_point)) continue;
    CodePoints parts;
    Decompose(c, &parts);
    if (CombiningClass(code_point) != 0) inert_[c] = false;
    if (parts.size() == 1 && parts[0] == code_point) continue;
    const CodePoints decomposed = parts;
    const bool hangul = c >= 0xAC00 && c < 0xD7A4;
    if (!hangul) firsts.push_back({c, static_cast<char32_t>(decomposed[0])});
    for (size_t i = 1; i < decomposed.size() && !hangul; ++i) {
      const auto part = static_cast<char32_t>(decomposed[i]);
      if (part < kEnd) inert_[part] = false;
    }
    Compose(&parts);
    if (parts.size() != 1 || parts[0] != code_point) inert_[c] = false;
  }
  for (const auto& [whole, first] : firsts) {
    if (!IsInert(first)) inert_[whole] = false;
  }
}

bool Nfc::IsInert(char32_t c) const {
  return c >= kEnd || inert_[c];
}

std::string_view Nfc::Apply(std::string_view text, std::string* buffer) const {
  bool changed = false;
  size_t done = 0;      // up to here *buffer holds the text, if it is used
  size_t previous = 0;  // the character in front of `at`
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xCC) {  // below U+0300
      previous = at;
      at += static_cast<unsigned char>(text[at]) < 0x80 ? 1 : 2;
      continue;
    }
    const size_t begin = at;
    if (IsInert(DecodeUtf8(text, &at))) {
      previous = begin;
      continue;
    }
    // With the character in front, up to the next one that is inert.
    size_t end = at;
    while (at < text.size() && !IsInert(DecodeUtf8(text, &at))) end = at;
    const std::string_view stretch = text.substr(previous, end - previous);
    std::string composed;
    AppendNfc(stretch, &composed);
    if (composed != stretch) {
      if (!changed) buffer->clear();
      changed = true;
      buffer->append(text.substr(done, previous - done)).append(composed);
      done = end;
    }
    at = end;
    previous = end;  // an inert character or the end of the text
  }
  if (!changed) return text;
  buffer->append(text.substr(done));
  return *buffer;
}

}  // namespace trine
