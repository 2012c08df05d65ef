#include "src/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdio>

#include "src/core/quote.h"
#include "src/text/utf8.h"

namespace trine {
namespace {

// The insides of classes. PCRE2's own \s has U+180E too, and its \w lacks marks.
constexpr std::string_view kSpace = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a})"
                                    R"(\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// Where PCRE2 calls out while it matches: behind each loop whose turns it does not count.
constexpr std::string_view kLoopCallout = "(?C1)";

constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kNotWord =
    R"(\p{Nl}\p{No}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}\p{S}\p{Z}\p{C})";

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      TRINE_RETURN_IF_ERROR(in_[at_] == '\\' ? Escape() : in_class_ ? InClass() : Outside());
    }
    return std::move(out_);
  }

 private:
  char At(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void CopyLoop(size_t count);
  void Copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  Status Replace(size_t count, std::string_view text) {
    at_ += count;
    out_ += text;
    return {};
  }
  Status Refuse(size_t count, const std::string& why) const {
    return BadPattern(in_, Quote(in_.substr(at_, count)) + " " + why);
  }

  Status Outside();
  Status InClass();
  Status Group();
  Status Interval();
  Status Escape();
  Status Letter(char letter);
  Status Set(std::string_view inside, std::string_view negated);
  Status Boundary(bool inverted);
  Status CodePoint();
  Status Property();
  Status CheckRange() const;

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
};

Status Translator::Outside() {
  const char c = in_[at_];
  if (c == '(') return Group();
  if (c == '{') return Interval();
  if (c == '[') {
    Copy(At(1) == '^' ? 2 : 1);
    in_class_ = true;
    if (At(0) == ']') return Refuse(1, "opens a class that it also begins; write \\]");
    return {};
  }
  const bool loop = c == '*' || c == '+';
  loop ? CopyLoop(1) : Copy(1);
  return {};
}

// A quantifier without an upper bound, `count` long, and what makes it lazy or possessive.
void Translator::CopyLoop(size_t count) {
  Copy(count + (At(count) == '?' || At(count) == '+' ? 1 : 0));
  out_ += kLoopCallout;
}

Status Translator::InClass() {
  const char c = in_[at_];
  if (c == '[') return Refuse(2, "inside [...] (a nested set or POSIX class) is not supported");
  if (c == '&' && At(1) == '&') return Refuse(2, "inside [...] is not supported");
  in_class_ = c != ']';
  Copy(1);
  return {};
}

Status Translator::Group() {
  if (At(1) == '*') return Refuse(2, "is not supported");
  if (At(1) != '?') {
    Copy(1);
    return {};
  }
  const char kind = At(2);
  if (kind == ':' || kind == '=' || kind == '!' || kind == '>' || kind == '<') {
    Copy(3);
    return {};
  }
  size_t end = 2;
  std::string flags;
  for (; At(end) == 'i' || At(end) == 'm' || At(end) == '-'; ++end) {
    flags += At(end) == 'm' ? 's' : At(end);
  }
  const bool at_start = at_ == 0;  // elsewhere it would reach differently far into alternatives
  if (end == 2 || (At(end) != ':' && !(At(end) == ')' && at_start))) {
    return Refuse(end + 1, "is a group that is not supported");
  }
  return Replace(end, "(?" + flags);
}

// {n}, {n,}, {,m} and {n,m}; other braces stand for themselves.
Status Translator::Interval() {
  size_t end = 1;
  while (IsDigit(At(end))) ++end;
  const bool no_low = end == 1;
  const bool one_number = At(end) != ',';
  if (!one_number) ++end;
  const size_t high = end;
  while (IsDigit(At(end))) ++end;
  if (At(end) != '}' || (no_low && (one_number || end == high))) {
    Copy(1);
    return {};
  }
  if (At(end + 1) == '+' || (At(end + 1) == '?' && one_number)) {
    return Refuse(end + 2, "means something else in PCRE2");
  }
  out_ += no_low ? "{0" : "{";
  ++at_;
  !one_number&& end == high ? CopyLoop(end) : Copy(end);
  return {};
}

Status Translator::Escape() {
  const char c = At(1);
  if (c == 'p' || c == 'P') return Property();
  if (c == 'x' || c == 'u') return CodePoint();
  if (IsLetter(c)) return Letter(c);
  if (c == '0' || (in_class_ && IsDigit(c))) return Refuse(2, "is not supported");
  Copy(2);
  return {};
}

Status Translator::Letter(char letter) {
  constexpr std::string_view kSame = "dDntrfae";    // in both dialects
  constexpr std::string_view kSameOutside = "AzZ";  // these outside classes only
  switch (letter) {
    case 's':
      return Set(kSpace, kNotSpace);
    case 'S':
      return Set(kNotSpace, kSpace);
    case 'w':
      return Set(kWord, kNotWord);
    case 'W':
      return Set(kNotWord, kWord);
    case 'b':
    case 'B':
      if (!in_class_) return Boundary(/*inverted=*/letter == 'B');
      return letter == 'b' ? Replace(2, R"(\x08)") : Refuse(2, "inside [...] is not supported");
    case 'v':
      return Replace(2, R"(\x0b)");
    default:
      break;
  }
  if (kSame.find(letter) == std::string_view::npos &&
      (in_class_ || kSameOutside.find(letter) == std::string_view::npos)) {
    return Refuse(2, "is not supported");
  }
  Copy(2);
  return letter == 'd' || letter == 'D' ? CheckRange() : Status();
}

Status Translator::Set(std::string_view inside, std::string_view negated) {
  if (in_class_) {
    TRINE_RETURN_IF_ERROR(Replace(2, inside));
    return CheckRange();
  }
  // The shorter of the two spellings.
  const bool negate = negated.size() < inside.size();
  return Replace(2, std::string(negate ? "[^" : "[").append(negate ? negated : inside).append("]"));
}

Status Translator::Boundary(bool inverted) {
  const std::string word = std::string("[").append(kWord).append("]");
  const std::string behind[] = {"(?<=" + word + ")", "(?<!" + word + ")"};
  const std::string ahead[] = {"(?=" + word + ")", "(?!" + word + ")"};
  const int other = inverted ? 0 : 1;
  return Replace(2, "(?:" + behind[0] + ahead[other] + "|" + behind[1] + ahead[1 - other] + ")");
}

// \uHHHH, \xHH and \x{H...}.
Status Translator::CodePoint() {
  const bool braces = At(1) == 'x' && At(2) == '{';
  size_t end = braces ? 3 : 2;
  const size_t begin = end;
  const size_t most = braces ? 8 : At(1) == 'u' ? 4 : 2;
  while (end - begin < most && IsHex(At(end))) ++end;
  const std::string digits(in_.substr(at_ + begin, end - begin));
  if (digits.empty() || (braces && At(end) != '}') || (At(1) == 'u' && digits.size() != 4)) {
    return Refuse(end + 1, "is not a code point");
  }
  if (At(1) == 'x' && !braces && digits.size() == 2 && digits[0] >= '8') {
    return Refuse(end, "is a byte, not a character; write \\x{...}");
  }
  return Replace(end + (braces ? 1 : 0), "\\x{" + digits + "}");
}

// General categories are spelled alike. A longer name is a script, which PCRE2 extends by default
// since 10.40.
Status Translator::Property() {
  const size_t close = in_.find('}', at_);
  if (At(2) != '{' || close == std::string_view::npos) {
    return Refuse(3, "is not \\p{NAME}");
  }
  const size_t name = At(3) == '^' ? 4 : 3;
  const size_t length = close - at_ - name;
  if (length <= 2 || in_.substr(at_ + name, length) == "Any") {
    Copy(close + 1 - at_);
    return CheckRange();
  }
  Copy(name);
  if (PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40) out_ += "sc:";
  Copy(length + 1);
  return CheckRange();
}

// Behind an escape that is a set: a range cannot begin with one.
Status Translator::CheckRange() const {
  if (!in_class_ || At(0) != '-' || At(1) == ']') return {};
  return Refuse(2, "is a range that begins with a set");
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

Status BadPattern(std::string_view pattern, const std::string& why) {
  return BadInput("pre-tokeniser pattern " + Quote(pattern) + ": " + why +
                  "; convert the tokenizer with another pattern");
}

std::string QuotePattern(std::string_view text) {
  std::string quoted;
  for (size_t at = 0; at < text.size();) {
    std::array<char, 16> code{};
    std::snprintf(code.data(), code.size(), "\\x{%x}",
                  static_cast<unsigned>(DecodeUtf8(text, &at)));
    quoted += code.data();
  }
  return quoted;
}

}  // namespace trine
