// The rules of src/text by themselves: patterns, pre-tokenisers, form C, finding special tokens.
#include <gtest/gtest.h>

#include <string>

#include "src/text/nfc.h"
#include "src/text/pattern.h"
#include "src/text/pretokenizer.h"
#include "src/text/special_tokens.h"
#include "tests/text_fixtures.h"

namespace trine {
namespace {

// ---- Pre-tokenisers

// The pieces with '|' between.
std::string PiecesOf(const std::vector<SplitPass>& passes, std::string_view text) {
  auto splitter = PreTokenizer::Create(passes);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  if (!splitter.ok()) return {};
  RegexScratch scratch(text.size());
  std::string joined;
  bool first = true;
  const Status status = (*splitter)->Split(text, &scratch, [&](std::string_view piece) {
    joined += std::string(first ? "" : "|").append(piece);
    first = false;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return joined;
}

std::string Pieces(std::string_view rule, std::string_view text) {
  return PiecesOf(FindPreRule(rule)->passes, text);
}

// "" if the pattern is supported.
std::string PatternError(const std::string& pattern) {
  const auto splitter = PreTokenizer::Create({{pattern}});
  return splitter.ok() ? "" : splitter.status().message();
}

TEST(PreTokenizer, Split_Smollm_SingleDigitsThenWords) {
  EXPECT_EQ(Pieces("smollm", "it's  a 12x, ok\n\n"), "it|'s| | a| |1|2|x|,| ok|\n\n");
  EXPECT_EQ(Pieces("smollm", "IT'S \xC2\xBD\n y"), "IT|'|S| |\xC2\xBD|\n| y");
  EXPECT_EQ(Pieces("smollm", ""), "");
}

TEST(PreTokenizer, Split_OtherRules_DifferInDigitsMarksAndLineEnds) {
  EXPECT_EQ(Pieces("gpt-2", "a 1234.\n\n b"), "a| 1234|.|\n\n| b");
  EXPECT_EQ(Pieces("qwen2", "a 1234.\n\n b'RE"), "a| |1|2|3|4|.\n\n| b|'RE");
  EXPECT_EQ(Pieces("llama-bpe", "a 1234.\n\n b"), "a| |123|4|.\n\n| b");
  const std::string_view with_mark = "e\xCC\x81t";  // a combining acute
  EXPECT_EQ(Pieces("qwen2", with_mark), "e|\xCC\x81t");
  EXPECT_EQ(Pieces("qwen35", with_mark), with_mark);
}

TEST(PreTokenizer, Split_TwentyMegabytesOfSpaces_EveryRuleTakesLinearTime) {
  const std::string spaces(20'000'000, ' ');
  for (const char* rule : {"smollm", "gpt-2", "qwen2", "qwen35", "llama-bpe"}) {
    EXPECT_TRUE(Pieces(rule, spaces) == spaces) << rule;
    EXPECT_TRUE(Pieces(rule, spaces + "x") == spaces.substr(1) + "| x") << rule;
  }
}

TEST(PreTokenizer, Split_WhiteSpaceBeyondAscii_IsUnicodesNotPerls) {
  const std::string mongolian_vowel_separator = "\xE1\xA0\x8E";  // U+180E: no White_Space
  const std::string ideographic_space = "\xE3\x80\x80";          // U+3000: is
  EXPECT_EQ(Pieces("gpt-2", "!" + mongolian_vowel_separator), "!" + mongolian_vowel_separator);
  EXPECT_EQ(Pieces("gpt-2", "  " + mongolian_vowel_separator), " | " + mongolian_vowel_separator);
  EXPECT_EQ(Pieces("gpt-2", "!" + ideographic_space), "!|" + ideographic_space);
}

TEST(PreTokenizer, Split_LongSInContraction_IsOneAsWithoutCase) {
  const std::string long_s = "\xC5\xBF";  // U+017F
  for (const char* rule : {"qwen2", "qwen35", "llama-bpe"}) {
    EXPECT_EQ(Pieces(rule, "x'" + long_s + "t"), "x|'" + long_s + "|t") << rule;
  }
}

TEST(PreTokenizer, Split_KeepMatchesOrGaps_DropsTheOther) {
  using Keep = SplitPass::Keep;
  EXPECT_EQ(PiecesOf({{"b+", Keep::kGaps}}, "abbcb"), "a|c");
  EXPECT_EQ(PiecesOf({{"b+", Keep::kMatches}}, "abbcb"), "bb|b");
  EXPECT_EQ(PiecesOf({{"b+", Keep::kMatches}, {"b", Keep::kBoth}}, "abbcb"), "b|b|b");
}

TEST(PreTokenizer, Split_ManyRunsOfSpaces_StayInTheBudget) {
  const std::string text = Repeat(std::string(5'000, ' ') + "x", 1'000);
  for (const char* rule : {"smollm", "gpt-2", "qwen2", "qwen35", "llama-bpe"}) {
    EXPECT_EQ(Pieces(rule, text).size(), text.size() + 2 * 1'000 - 1) << rule;
  }
}

TEST(PreTokenizer, Split_PatternThatRunsAway_IsAnErrorNotAPiece) {
  const struct {
    const char* pattern;
    const char* error;
  } kCases[] = {
      {"(?:a+)+[bc]", "match limit exceeded"},  // exponential in one match
      {"(?:a|b)*c|a", "match limit exceeded"},  // n steps for each of n matches
      {"a*+c|a", "time limit exceeded"},        // the same, of the kind that is not counted
  };
  for (const auto& one : kCases) {
    auto splitter = PreTokenizer::Create({{one.pattern}});
    ASSERT_TRUE(splitter.ok());
    const std::string text = std::string(300'000, 'a') + "bc";
    RegexScratch scratch(text.size());
    const Status status = (*splitter)->Split(text.substr(0, 300'000), &scratch, [](auto) {});
    ASSERT_FALSE(status.ok()) << one.pattern;
    EXPECT_NE(status.message().find(one.error), std::string::npos) << status.message();
  }
}

// ---- Patterns: what the engine that vocabularies were trained with made of them

TEST(Pattern, Split_SpellingsThatDiffer_MeanWhatTheyMeantInTraining) {
  const struct {
    const char* pattern;
    const char* text;
    const char* pieces;
  } kCases[] = {
      {R"(\w+)", "a\u0301b_1\u00b2\u203f\u200d", "a\u0301b_1|\u00b2|\u203f|\u200d"},
      {R"([\w]+)", "a\u0301-", "a\u0301|-"},
      {R"(\W+)", "a\u0301-\u00b2b", "a\u0301|-\u00b2|b"},
      {R"([\W]+)", "a\u0301-\u00b2b", "a\u0301|-\u00b2|b"},
      {R"([^\W\d]+)", "a\u0301_7\u00b2", "a\u0301_|7\u00b2"},
      {R"(\p{Han}+)", "\u3005\u3007\u6f22\u3001\u30fc", "\u3005\u3007\u6f22|\u3001\u30fc"},
      {R"(\P{Han}+)", "\u3001\u6f22", "\u3001|\u6f22"},
      {R"([^\p{^Han}]+)", "\u3001\u6f22", "\u3001|\u6f22"},
      {R"((?=b))", "abab", "a|ba|b"},
      {R"(x*)", "axxb", "a|xx|b"},
      {R"(^b)", "a\nb\n", "a\n|b|\n"},
      {R"(a$)", "ba\nb", "b|a|\nb"},
      {R"(a.c)", "a\rc a\nc", "a\rc| a\nc"},
      {R"(\s+)", "\u180e\u200b\u0085\u2028", "\u180e\u200b|\u0085\u2028"},
      {R"([\S]+)", "a b\u3000", "a| |b|\u3000"},
      {R"([^\S\n]+)", "a \t\n", "a| \t|\n"},
      {R"(\d+)", "1\u00b2\u0663\u00bd", "1|\u00b2|\u0663|\u00bd"},
      {R"(\bfoo)", "e\u0301foo foo", "e\u0301foo |foo"},
      {R"(o\B)", "foo fo", "f|o|o fo"},
      {R"(\v)", "\n\x0b", "\n|\x0b"},
      {R"((?m).+)", "a\nb", "a\nb"},
      {R"((?m:a.)b)", "a\nb a.b", "a\nb| |a.b"},
      {R"((?i)AB)", "xab", "x|ab"},
      {R"(a{,2}b)", "aaab", "a|aab"},
      {R"(a{2}b)", "aaab", "a|aab"},
      {R"(a{,b)", "a{,b", "a{,b"},
      {R"(\x{e9}|\x41|\u0042)", "\u00e9AB", "\u00e9|A|B"},
      {R"([\b])", "a\bc", "a|\b|c"},
      {R"((?<x>a)b)", "cab", "c|ab"},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(PiecesOf({{one.pattern}}, one.text), one.pieces) << one.pattern;
  }
}

TEST(Pattern, Create_WithoutATranslation_IsRefusedByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"(a", "PCRE2 refuses it: missing closing parenthesis"},
      {"a(?<=b+)", "PCRE2 refuses it: lookbehind"},
      {R"(\p{Nonsense})", "PCRE2 refuses it: unknown property"},
      {"[a[b]]", "'[b' inside [...]"},
      {"[[:alpha:]]", "'[:' inside [...]"},
      {"[a&&b]", "'&&' inside [...]"},
      {"[]a]", "opens a class"},
      {R"([\B])", R"('\B' inside [...])"},
      {R"([\w-z])", "begins with a set"},
      {R"([\s-z])", "begins with a set"},
      {R"(a{1,3}+)", "'{1,3}+' means something else"},
      {R"(a{3}?)", "'{3}?' means something else"},
      {R"(\h)", R"('\h' is not supported)"},
      {R"(\Kx)", R"('\K' is not supported)"},
      {R"(\Qx\E)", R"('\Q' is not supported)"},
      {R"(\G)", R"('\G' is not supported)"},
      {R"(\012)", R"('\0' is not supported)"},
      {R"(\xe9)", "is a byte"},
      {R"(\x{})", "is not a code point"},
      {R"(\u12)", "is not a code point"},
      {R"(\pL)", "is not \\p{NAME}"},
      {"(*UTF)a", "'(*' is not supported"},
      {"a(?i)b", "is a group that is not supported"},
      {"(?s)a", "is a group that is not supported"},
      {"(?R)", "is a group that is not supported"},
      {"(?(1)a)", "is a group that is not supported"},
      {"(?#x)", "is a group that is not supported"},
      {"", "is 0 bytes long"},
  };
  for (const auto& [pattern, expected] : kCases) {
    const std::string error = PatternError(pattern);
    EXPECT_NE(error.find(expected), std::string::npos) << pattern << ": " << error;
    EXPECT_NE(error.find("pattern '" + std::string(pattern) + "'"), std::string::npos) << error;
  }
  EXPECT_NE(PatternError(std::string(20'001, 'a')).find("is 20001 bytes long"), std::string::npos);
  EXPECT_EQ(PatternError("a\n(").find('\n'), std::string::npos);
}

TEST(Pattern, QuotePattern_AnyText_MatchesItself) {
  const std::string text = "a.[\\(\u00e9\n";
  EXPECT_EQ(PiecesOf({{QuotePattern(text)}}, "x" + text + "y"), "x|" + text + "|y");
}

// ---- Form C

std::string ToNfc(std::string_view text) {
  std::string buffer;
  return std::string(Nfc().Apply(text, &buffer));
}

TEST(Nfc, Apply_ComposesReordersAndKeeps) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", ""},
      {"plain \u6f22 \U0001F600", "plain \u6f22 \U0001F600"},
      {"e\u0301", "\u00e9"},
      {"e\u0301x\u00e9e\u0301", "\u00e9x\u00e9\u00e9"},
      {"e\u0327\u0301", "\u0229\u0301"},
      {"\u00e9\u0327", "\u0229\u0301"},         // taken apart again
      {"a\u0301\u0323", "\u1ea1\u0301"},        // out of order
      {"\u0301a", "\u0301a"},                   // nothing in front
      {"\u212b\u2126\u037e", "\u00c5\u03a9;"},  // one for one
      {"\u0958", "\u0915\u093c"},               // excluded from composition
      {"\u1112\u1161\u11ab", "\ud55c"},
      {"\ud558\u11ab", "\ud55c"},
      {"\ud55c\u11ab", "\ud55c\u11ab"},
      {"\u0cc6\u0cc2\u0cd5", "\u0ccb"},  // two starters
      {"\U0002F800", "\u4e3d"},
      {"\U0001D15E", "\U0001D157\U0001D165"},
      {"a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b"},
  };
  for (const auto& [text, expected] : kCases) {
    EXPECT_EQ(ToNfc(text), expected) << nlohmann::json(text);
    EXPECT_EQ(ToNfc(std::string("x") + text + "x"), std::string("x") + expected + "x");
  }
}

TEST(Nfc, Apply_TextThatIsInForm_IsNotCopied) {
  const std::string_view text = "caf\u00e9 q\u0323\u0307 \ud55c";
  std::string buffer;
  EXPECT_EQ(Nfc().Apply(text, &buffer).data(), text.data());
}

TEST(Nfc, Apply_TwentyMegabytesOfMarksOutOfOrder_TakesLinearTime) {
  const std::string sorted = Repeat("\u0323", 5'000'000) + Repeat("\u0301", 5'000'000);
  const std::string composed = ToNfc("a" + Repeat("\u0301\u0323", 5'000'000));
  EXPECT_TRUE(composed == "\u1ea1" + sorted.substr(2));
}

// ---- Finding special tokens

// "BEGIN-END:ID " of each match; every byte is in the range unless `parse` says otherwise.
std::string Found(const SpecialTokens& tokens, std::string_view text,
                  const ByteRanges& parse = {{0, 1 << 20}}) {
  std::string found;
  SpecialTokens::Cursor cursor(tokens, text, parse);
  while (const auto match = cursor.Next()) {
    found += std::to_string(match->begin) + "-" + std::to_string(match->end) + ":" +
             std::to_string(match->id) + " ";
  }
  return found;
}

TEST(SpecialTokens, Next_SeveralFit_LeftmostThenLongest) {
  const SpecialTokens tokens({{"ab", 1}, {"abc", 2}, {"bcd", 3}, {"abc", 4}, {"", 5}});
  EXPECT_EQ(Found(tokens, "xabcd abd bcd"), "1-4:2 6-8:1 10-13:3 ");
  EXPECT_EQ(Found(tokens, ""), "");
}

TEST(SpecialTokens, Next_ControlTokenNotInsideARange_DoesNotCount) {
  const SpecialTokens tokens({{"abc", 1, /*control=*/true}, {"b", 2}, {"ab", 3, true}});
  EXPECT_EQ(Found(tokens, "abcabc", {{3, 6}}), "1-2:2 3-6:1 ");
  EXPECT_EQ(Found(tokens, "abc", {{0, 2}}), "0-2:3 ");
  EXPECT_EQ(Found(tokens, "abc", {{1, 3}}), "1-2:2 ");
  EXPECT_EQ(Found(tokens, "abc", {}), "1-2:2 ");
}

TEST(SpecialTokens, Next_StripFlags_TakeWhiteSpaceOfEveryKind) {
  SpecialTokens::Token token{"<x>", 1};
  token.lstrip = true;
  EXPECT_EQ(Found(SpecialTokens({token}), "a \u3000<x> <x>"), "1-8:1 8-12:1 ");
  token.rstrip = true;
  EXPECT_EQ(Found(SpecialTokens({token}), "a <x>\u2003\n b <x> "), "1-10:1 11-16:1 ");
}

TEST(SpecialTokens, Next_StripOverWhiteSpaceThatAreTokens_IsOneInLinearTime) {
  SpecialTokens::Token token{" ", 1};
  token.lstrip = token.rstrip = true;
  const std::string text(1'000'000, ' ');
  const SpecialTokens tokens({token});
  const ByteRanges everything = {{0, 1'000'000}};
  SpecialTokens::Cursor cursor(tokens, text, everything);
  int64_t count = 0;
  while (const auto match = cursor.Next()) {
    EXPECT_EQ(match->end, 1'000'000);
    ++count;
  }
  EXPECT_EQ(count, 1);
}

TEST(SpecialTokens, Next_SingleWord_NeedsNoWordCharacterBeside) {
  SpecialTokens::Token token{"word", 1};
  token.single_word = true;
  const SpecialTokens tokens({token});
  EXPECT_EQ(Found(tokens, "word"), "0-4:1 ");
  EXPECT_EQ(Found(tokens, "(word)\u00b2word"), "1-5:1 8-12:1 ");
  for (const char* text : {"words", "aword", "word_", "7word", "word\u0301", "\u6f22word",
                           "word\u24b6", "word\u200d"}) {
    EXPECT_EQ(Found(tokens, text), "") << text;
  }
}

}  // namespace
}  // namespace trine
