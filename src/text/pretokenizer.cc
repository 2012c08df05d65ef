#include "src/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

namespace trine {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kQwen2 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                                     R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const PreRule kRules[] = {
    {"smollm", {R"(\p{N})", kGpt2}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"gpt-2", {kGpt2}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"qwen2", {kQwen2}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"qwen35", {kQwen35}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"llama-bpe", {kLlama3}, /*ignore_merges=*/true, /*add_bos=*/true},
    {"llama3", {kLlama3}, /*ignore_merges=*/true, /*add_bos=*/true},
    {"llama-v3", {kLlama3}, /*ignore_merges=*/true, /*add_bos=*/true},
};

// Unicode's White_Space as the inside of a class. PCRE2's own \s has U+180E too, which the engines
// that the vocabularies were trained with do not.
constexpr std::string_view kWhiteSpace = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a})"
                                         R"(\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

Status BadPattern(std::string_view pattern, const std::string& why) {
  return BadInput("pre-tokeniser pattern '" + std::string(pattern) + "': " + why +
                  "; only patterns that PCRE2 compiles are supported");
}

Result<std::string> RewriteWhiteSpace(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      if (pattern[i] == '[') in_class = true;
      if (pattern[i] == ']') in_class = false;
      out += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 'S' && in_class) return BadPattern(pattern, "has \\S inside [...]");
    if (escaped != 's' && escaped != 'S') {
      out += {'\\', escaped};
    } else if (in_class) {
      out += kWhiteSpace;
    } else {
      out.append(escaped == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
    }
  }
  return out;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR8 buffer[256];
  pcre2_get_error_message_8(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

struct FreeCode {
  void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data_8* match) const { pcre2_match_data_free_8(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
};
using MatchData = std::unique_ptr<pcre2_match_data_8, FreeMatch>;
using MatchContext = std::unique_ptr<pcre2_match_context_8, FreeContext>;

// Backing off from a run of n characters counts n matches, so a limit that does not grow with the
// text refuses one long run of spaces.
MatchContext MakeContext(size_t text_size) {
  MatchContext context(pcre2_match_context_create_8(nullptr));
  const uint64_t limit = 1'000'000 + 16 * static_cast<uint64_t>(text_size);
  pcre2_set_match_limit_8(context.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  return context;
}

}  // namespace

struct PreTokenizer::Pass {
  std::unique_ptr<pcre2_code_8, FreeCode> code;
  bool jit;  // without it the same pieces come out, about four times slower

  int Match(std::string_view text, size_t at, pcre2_match_data_8* match,
            pcre2_match_context_8* context) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
    if (jit) {
      return pcre2_jit_match_8(code.get(), subject, text.size(), at, 0, match, context);
    }
    return pcre2_match_8(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, context);
  }

  // Appends the ends of the pieces of text[begin, end), a subject of its own.
  Status Split(std::string_view text, size_t begin, size_t end, pcre2_match_data_8* match,
               pcre2_match_context_8* context, std::vector<int64_t>* ends) const {
    const std::string_view subject = text.substr(begin, end - begin);
    const size_t* bounds = pcre2_get_ovector_pointer_8(match);
    size_t at = 0;
    while (at < subject.size()) {
      const int rc = Match(subject, at, match, context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      // An empty match would not advance; none of the patterns has one.
      if (rc < 0 || bounds[1] <= bounds[0]) {
        return BadInput("text of " + std::to_string(text.size()) +
                        " bytes cannot be split into words at byte " + std::to_string(begin + at) +
                        " (" + (rc < 0 ? ErrorText(rc) : "empty match") + "); shorten it");
      }
      if (bounds[0] > at) ends->push_back(static_cast<int64_t>(begin + bounds[0]));
      ends->push_back(static_cast<int64_t>(begin + bounds[1]));
      at = bounds[1];
    }
    if (at < subject.size()) ends->push_back(static_cast<int64_t>(end));
    return {};
  }
};

const PreRule* FindPreRule(std::string_view name) {
  for (const PreRule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::string PreRuleNames() {
  std::string names;
  for (const PreRule& rule : kRules) {
    if (!names.empty()) names += ", ";
    names += rule.name;
  }
  return names;
}

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    const std::vector<std::string_view>& passes) {
  std::unique_ptr<PreTokenizer> result(new PreTokenizer);
  for (std::string_view pattern : passes) {
    TRINE_ASSIGN(const std::string rewritten, RewriteWhiteSpace(pattern));
    int error = 0;
    size_t offset = 0;
    Pass pass;
    pass.code.reset(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(rewritten.data()),
                                    rewritten.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                                    nullptr));
    if (pass.code == nullptr) return BadPattern(pattern, ErrorText(error));
    pass.jit = pcre2_jit_compile_8(pass.code.get(), PCRE2_JIT_COMPLETE) == 0;
    result->passes_.push_back(std::move(pass));
  }
  return result;
}

Status PreTokenizer::Split(std::string_view text, std::vector<int64_t>* ends) const {
  ends->clear();
  if (text.empty()) return {};
  ends->push_back(static_cast<int64_t>(text.size()));
  const MatchContext context = MakeContext(text.size());
  std::vector<int64_t> before;
  for (const Pass& pass : passes_) {
    const MatchData match(pcre2_match_data_create_from_pattern_8(pass.code.get(), nullptr));
    before.swap(*ends);
    ends->clear();
    size_t begin = 0;
    for (int64_t end : before) {
      TRINE_RETURN_IF_ERROR(
          pass.Split(text, begin, static_cast<size_t>(end), match.get(), context.get(), ends));
      begin = static_cast<size_t>(end);
    }
  }
  return {};
}

}  // namespace trine
