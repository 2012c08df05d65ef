// src/text with small hand-made vocabularies, and against ids that another implementation computed
// for a real one (tests/data/smollm2_tokenizer.json; the vocabulary comes from the model file).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "src/core/metadata.h"
#include "src/text/pretokenizer.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"
#include "src/weights/weight_store.h"

namespace trine {
namespace {

using Ids = std::vector<int32_t>;
using Special = Tokenizer::Special;

// The character that stands for a byte in a byte-level vocabulary, by the rule of GPT-2.
std::string Symbol(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 0x100;
    for (int b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
  }
  std::string symbol;
  AppendUtf8(static_cast<char32_t>(code_point), &symbol);
  return symbol;
}

// A vocabulary whose first 256 tokens are the bytes in order: the id of a byte is its value.
struct Tiny {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<std::string> merges;
  std::map<std::string, MetaValue> more = {{"tokenizer.ggml.model", std::string("gpt2")},
                                           {"tokenizer.ggml.pre", std::string("smollm")}};

  Tiny() {
    for (int byte = 0; byte < 256; ++byte) Add(Symbol(byte));
  }

  int32_t Add(const std::string& token, TokenType type = TokenType::kNormal) {
    tokens.push_back(token);
    types.push_back(static_cast<int64_t>(type));
    return static_cast<int32_t>(tokens.size() - 1);
  }

  // A merge and the token it makes.
  int32_t AddMerge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return Add(left + right);
  }

  void Set(const std::string& key, MetaValue value) {
    more["tokenizer.ggml." + key] = std::move(value);
  }

  Metadata Meta() const {
    Metadata meta;
    meta.Insert("tokenizer.ggml.tokens", tokens);
    meta.Insert("tokenizer.ggml.token_type", types);
    for (const auto& [key, value] : more) meta.Insert(key, value);
    meta.Insert("tokenizer.ggml.merges", merges);  // unless `more` has one
    return meta;
  }

  std::unique_ptr<Tokenizer> Make() const {
    auto tokenizer = Tokenizer::FromMetadata(Meta());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
  }

  std::string Error() const {
    const auto tokenizer = Tokenizer::FromMetadata(Meta());
    return tokenizer.ok() ? "" : tokenizer.status().message();
  }
};

Ids Encode(const Tokenizer& tokenizer, std::string_view text, Special special = Special::kAsText) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

std::string Decode(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (int32_t id : ids) text += detokenizer.Next(id);
  return text + detokenizer.Finish();
}

std::string Repeat(std::string_view unit, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += unit;
  return text;
}

// ---- Merging

TEST(Tokenizer, Encode_LaterMergeOnTheLeft_LowestRankWins) {
  Tiny tiny;
  const int32_t bc = tiny.AddMerge("b", "c");
  tiny.AddMerge("a", "b");
  EXPECT_EQ(Encode(*tiny.Make(), "abc"), (Ids{'a', bc}));
}

TEST(Tokenizer, Encode_EqualRanks_LeftmostFirst) {
  Tiny tiny;
  const int32_t aa = tiny.AddMerge("a", "a");
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, "aaa"), (Ids{aa, 'a'}));
  Ids expected(500, aa);  // long enough for the heap
  expected.push_back('a');
  EXPECT_EQ(Encode(*tokenizer, Repeat("a", 1001)), expected);
}

TEST(Tokenizer, Encode_MergeListedTwice_FirstRankCounts) {
  Tiny tiny;
  const int32_t ab = tiny.AddMerge("a", "b");
  tiny.AddMerge("b", "c");
  tiny.merges.push_back("a b");
  EXPECT_EQ(Encode(*tiny.Make(), "abc"), (Ids{ab, 'c'}));
}

TEST(Tokenizer, Encode_MergedSymbolIsNoToken_FallsToBytes) {
  Tiny tiny;
  tiny.merges = {"a b", "ab c"};
  const int32_t abc = tiny.Add("abc");
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, "abx"), (Ids{'a', 'b', 'x'}));
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{abc}));
}

TEST(Tokenizer, Encode_ByteWithoutToken_IsLeftOutBeforeMerging) {
  Tiny tiny;
  tiny.tokens['-'] = "unused";
  const int32_t bang = tiny.AddMerge("!", "!");
  EXPECT_EQ(Encode(*tiny.Make(), "!-!"), (Ids{bang}));
}

TEST(Tokenizer, Encode_TokenThatNoMergeReaches_OnlyIgnoreMergesGivesIt) {
  Tiny tiny;
  const int32_t abc = tiny.Add("abc");
  EXPECT_EQ(Encode(*tiny.Make(), "abc"), (Ids{'a', 'b', 'c'}));
  tiny.Set("pre", std::string("llama-bpe"));
  tiny.Set("bos_token_id", int64_t{0});
  EXPECT_EQ(Encode(*tiny.Make(), "abc"), (Ids{abc}));
}

TEST(Tokenizer, Encode_ControlTextMadeByMerges_StaysBytes) {
  Tiny tiny;
  tiny.merges = {"a b"};
  tiny.Add("ab", TokenType::kControl);
  EXPECT_EQ(Encode(*tiny.Make(), "ab"), (Ids{'a', 'b'}));
}

// Merges one at a time on whole strings, straight from the rule.
Ids MergeNaively(const Tiny& tiny, const std::string& text) {
  std::vector<std::string> symbols;
  for (char c : text) symbols.push_back(std::string(1, c));
  const auto merge_first = [&symbols](const std::string& merge) {
    for (size_t i = 1; i < symbols.size(); ++i) {
      if (symbols[i - 1] + " " + symbols[i] != merge) continue;
      symbols[i - 1] += symbols[i];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  };
  const auto merge_any = [&] {
    return std::any_of(tiny.merges.begin(), tiny.merges.end(), merge_first);
  };
  while (merge_any()) continue;
  Ids ids;
  for (const std::string& symbol : symbols) {
    const auto token = std::find(tiny.tokens.begin(), tiny.tokens.end(), symbol);
    ids.push_back(static_cast<int32_t>(token - tiny.tokens.begin()));
  }
  return ids;
}

TEST(Tokenizer, Encode_RandomMergesAndPieces_AgreesWithTheRule) {
  std::mt19937 random(1);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 20; ++round) {
    Tiny tiny;
    std::vector<std::string> parts = {"a", "b", "c"};
    while (parts.size() < 40) {
      const std::string left = parts[below(parts.size())];
      const std::string right = parts[below(parts.size())];
      if (std::find(parts.begin(), parts.end(), left + right) != parts.end()) continue;
      tiny.AddMerge(left, right);
      parts.push_back(left + right);
    }
    const auto tokenizer = tiny.Make();
    for (size_t length : {1, 2, 3, 7, 20, 47, 48, 49, 50, 90, 300}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + below(3));
      EXPECT_EQ(Encode(*tokenizer, text), MergeNaively(tiny, text)) << text;
    }
  }
}

TEST(Tokenizer, Encode_OneWordOfFiveMegabytes_TakesNLogN) {
  Tiny tiny;
  const int32_t aa = tiny.AddMerge("a", "a");
  const int32_t aaaa = tiny.AddMerge("aa", "aa");
  Ids expected(1'250'000, aaaa);
  expected.insert(expected.end(), {aa, 'a'});
  EXPECT_EQ(Encode(*tiny.Make(), Repeat("a", 5'000'003)), expected);
}

TEST(Tokenizer, Encode_TwentyMegabytesOfSpaces_TakesLinearTime) {
  const std::string spaces(20'000'000, ' ');
  EXPECT_EQ(Encode(*Tiny().Make(), spaces + "x").size(), spaces.size() + 1);
}

// ---- Pre-tokenisers

// The pieces with '|' between.
std::string Pieces(std::string_view rule, std::string_view text) {
  auto splitter = PreTokenizer::Create(FindPreRule(rule)->passes);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  std::vector<int64_t> ends;
  const Status status = (*splitter)->Split(text, &ends);
  EXPECT_TRUE(status.ok()) << status.message();
  std::string joined;
  size_t at = 0;
  for (int64_t end : ends) {
    if (at > 0) joined += '|';
    joined += text.substr(at, static_cast<size_t>(end) - at);
    at = static_cast<size_t>(end);
  }
  EXPECT_EQ(at, text.size());
  return joined;
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

TEST(PreTokenizer, Create_PatternThatDoesNotCompile_IsNamed) {
  const auto unbalanced = PreTokenizer::Create({"(a"});
  ASSERT_FALSE(unbalanced.ok());
  EXPECT_NE(unbalanced.status().message().find("'(a'"), std::string::npos);
  EXPECT_FALSE(PreTokenizer::Create({R"([a\S])"}).ok());
}

TEST(PreTokenizer, Split_PatternThatRunsAway_IsAnErrorNotAPiece) {
  auto splitter = PreTokenizer::Create({"(?:a+)+[bc]"});
  ASSERT_TRUE(splitter.ok());
  std::vector<int64_t> ends;
  EXPECT_FALSE((*splitter)->Split(std::string(60, 'a'), &ends).ok());
}

// ---- Special tokens

class SpecialTokenTest : public testing::Test {
 protected:
  SpecialTokenTest() {
    end = tiny.Add("<end>", TokenType::kControl);
    end_end = tiny.Add("<end><end>", TokenType::kControl);
    think = tiny.Add("<think>", TokenType::kUserDefined);
    unknown = tiny.Add("<unk>", TokenType::kUnknown);
    tokenizer = tiny.Make();
  }

  Tiny tiny;
  int32_t end, end_end, think, unknown;
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST_F(SpecialTokenTest, Encode_Parse_CutsEveryKind) {
  EXPECT_EQ(Encode(*tokenizer, "a<end>b<think><unk>", Special::kParse),
            (Ids{'a', end, 'b', think, unknown}));
  EXPECT_EQ(Encode(*tokenizer, "<en<end>", Special::kParse), (Ids{'<', 'e', 'n', end}));
}

TEST_F(SpecialTokenTest, Encode_AsText_ControlTextIsPlainText) {
  EXPECT_EQ(Encode(*tokenizer, "<end>"), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(Encode(*tokenizer, "<think><unk>"), (Ids{think, unknown}));
}

TEST_F(SpecialTokenTest, Encode_LongerTokenToTheRight_TakesItsPlaceFirst) {
  EXPECT_EQ(Encode(*tokenizer, "<end><end><end>", Special::kParse), (Ids{end_end, end}));
  Tiny overlapping;
  overlapping.Add("ab", TokenType::kControl);
  const int32_t bcd = overlapping.Add("bcd", TokenType::kControl);
  EXPECT_EQ(Encode(*overlapping.Make(), "abcd", Special::kParse), (Ids{'a', bcd}));
}

TEST_F(SpecialTokenTest, Piece_EveryType_GivesItsBytes) {
  EXPECT_EQ(tokenizer->Piece(end), "<end>");
  EXPECT_EQ(tokenizer->Piece(' '), " ");
  EXPECT_EQ(tokenizer->Piece(0xFF), "\xFF");
  EXPECT_EQ(tokenizer->Type(think), TokenType::kUserDefined);
  EXPECT_EQ(tokenizer->size(), 260);
}

TEST(Tokenizer, Piece_SpecialTokenWithMappedCharacters_IsTakenAsWritten) {
  Tiny tiny;
  const int32_t special =
      tiny.Add("<\xC4\xA0>", TokenType::kControl);  // U+0120 is a space's symbol
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(tokenizer->Piece(special), "<\xC4\xA0>");
  EXPECT_EQ(Encode(*tokenizer, "<\xC4\xA0>", Special::kParse), (Ids{special}));
}

TEST_F(SpecialTokenTest, Piece_IdOutOfRange_HasNoText) {
  for (int32_t id : {-1, 260, INT32_MAX}) {
    EXPECT_EQ(tokenizer->Piece(id), "");
    EXPECT_EQ(tokenizer->Type(id), TokenType::kUnused);
  }
}

TEST(Tokenizer, EndOfGeneration_KeysAndKnownMarkers_SortedOnce) {
  Tiny tiny;
  const int32_t text_end = tiny.Add("<|endoftext|>", TokenType::kControl);
  tiny.Add("<|im_start|>", TokenType::kControl);
  const int32_t turn_end = tiny.Add("<|im_end|>", TokenType::kControl);
  tiny.Add("</s>");  // a normal token with an end marker's text ends nothing
  tiny.Set("eos_token_id", int64_t{turn_end});
  tiny.Set("eot_token_id", int64_t{'x'});
  EXPECT_EQ(tiny.Make()->end_of_generation(), (Ids{'x', text_end, turn_end}));
}

TEST(Tokenizer, Bos_KeyOrRule_Decides) {
  Tiny tiny;
  EXPECT_EQ(tiny.Make()->bos(), -1);
  EXPECT_FALSE(tiny.Make()->add_bos());
  tiny.Set("bos_token_id", int64_t{7});
  EXPECT_EQ(tiny.Make()->bos(), 7);
  tiny.Set("pre", std::string("llama-bpe"));
  EXPECT_TRUE(tiny.Make()->add_bos());
  tiny.Set("add_bos_token", false);
  EXPECT_FALSE(tiny.Make()->add_bos());
}

TEST(Tokenizer, Encode_ManyThreads_GiveTheSameIds) {
  Tiny tiny;
  tiny.AddMerge("a", "b");
  const auto tokenizer = tiny.Make();
  const std::string text = Repeat("ab cab 12 ", 2000);
  const Ids expected = Encode(*tokenizer, text);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got)
    threads.emplace_back([&] { ids = *tokenizer->Encode(text, Special::kParse); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

// ---- Refusals

TEST(Tokenizer, Encode_InvalidUtf8_NamesTheOffset) {
  const auto tokenizer = Tiny().Make();
  const std::pair<std::string, const char*> cases[] = {
      {"0123456789\xFF", "byte 10 of 11 is 0xFF"},
      {"ab\xC3", "byte 2 of 3 is 0xC3"},             // ends inside a character
      {"\xC0\x80", "byte 0 of 2 is 0xC0"},           // overlong
      {"a\xED\xA0\x80", "byte 1 of 4 is 0xED"},      // surrogate
      {"\xF4\x90\x80\x80", "byte 0 of 4 is 0xF4"}};  // above U+10FFFF
  for (const auto& [text, expected] : cases) {
    const auto ids = tokenizer->Encode(text, Special::kAsText);
    ASSERT_FALSE(ids.ok());
    EXPECT_NE(ids.status().message().find(expected), std::string::npos) << ids.status().message();
  }
}

struct Refusal {
  const char* name;
  void (*damage)(Tiny*);
  std::vector<const char*> message_parts;
};

class TokenizerRefusal : public testing::TestWithParam<Refusal> {};

TEST(Tokenizer, FromMetadata_NoMerges_IsRefused) {
  Metadata meta;
  meta.Insert("tokenizer.ggml.model", std::string("gpt2"));
  meta.Insert("tokenizer.ggml.pre", std::string("smollm"));
  meta.Insert("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  const auto tokenizer = Tokenizer::FromMetadata(meta);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.status().message().find("merges is missing"), std::string::npos);
}

TEST_P(TokenizerRefusal, FromMetadata_DamagedVocabulary_NamesKeyAndValues) {
  Tiny tiny;
  GetParam().damage(&tiny);
  const std::string error = tiny.Error();
  for (const char* part : GetParam().message_parts) {
    EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' not in: " << error;
  }
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

const Refusal kRefusals[] = {
    {"UnknownModel",
     [](Tiny* t) { t->Set("model", std::string("t5")); },
     {"model is 't5'", "gpt2"}},
    {"NoModel", [](Tiny* t) { t->more.erase("tokenizer.ggml.model"); }, {"tokenizer.ggml.model"}},
    {"UnknownPre",
     [](Tiny* t) { t->Set("pre", std::string("default")); },
     {"pre is 'default'", "smollm"}},
    {"NoPre", [](Tiny* t) { t->more.erase("tokenizer.ggml.pre"); }, {"tokenizer.ggml.pre"}},
    {"NoTokens", [](Tiny* t) { t->tokens.clear(); }, {"tokenizer.ggml.tokens is 0 entries"}},
    {"TypesTooFew",
     [](Tiny* t) { t->types.pop_back(); },
     {"tokenizer.ggml.tokens has 256 entries", "token_type 255"}},
    {"TypeOutOfRange", [](Tiny* t) { t->types[9] = 7; }, {"token_type[9] is 7"}},
    {"TokenNotUtf8", [](Tiny* t) { t->tokens[3] = "\x80"; }, {"tokens[3] is not valid UTF-8"}},
    {"TokenTwice", [](Tiny* t) { t->tokens['b'] = "a"; }, {"tokens 97 and 98 are both 'a'"}},
    {"MergesOfAnotherType",
     [](Tiny* t) { t->Set("merges", int64_t{1}); },
     {"tokenizer.ggml.merges"}},
    {"MergeWithoutSpace",
     [](Tiny* t) {
       t->merges = {"a b", "ab"};
     },
     {"merge 1 is 'ab'"}},
    {"MergeWithoutRight", [](Tiny* t) { t->merges = {"a "}; }, {"merge 0 is 'a '"}},
    {"MergeWithoutLeft", [](Tiny* t) { t->merges = {" a"}; }, {"merge 0 is ' a'"}},
    {"MergeOfNoBytes", [](Tiny* t) { t->merges = {"a \xE4\xB8\xAD"}; }, {"merge 0 is 'a "}},
    {"EosOutOfRange",
     [](Tiny* t) { t->Set("eos_token_id", int64_t{256}); },
     {"eos_token_id is 256", "256 tokens"}},
    {"EotNegative", [](Tiny* t) { t->Set("eot_token_id", int64_t{-5}); }, {"eot_token_id is -5"}},
    {"BosOutOfRange",
     [](Tiny* t) { t->Set("bos_token_id", int64_t{1} << 40); },
     {"bos_token_id is 1099511627776"}},
    {"BosWantedButMissing", [](Tiny* t) { t->Set("add_bos_token", true); }, {"bos_token_id"}},
};

INSTANTIATE_TEST_SUITE_P(Cases, TokenizerRefusal, testing::ValuesIn(kRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Detokenizer

TEST(Detokenizer, Next_EmojiInFourTokens_ComesOutWhole) {
  const auto tokenizer = Tiny().Make();
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Next('a'), "a");
  for (int32_t byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(detokenizer.Next(byte), "");
  EXPECT_EQ(detokenizer.Next(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(Detokenizer, Next_ControlToken_GivesNoTextAndBreaksNoCharacter) {
  Tiny tiny;
  const int32_t end = tiny.Add("<end>", TokenType::kControl);
  EXPECT_EQ(Decode(*tiny.Make(), {'a', 0xC3, end, 0xA9, end}), "a\xC3\xA9");
}

TEST(Detokenizer, Finish_CharacterCutOff_IsOneReplacement) {
  const auto tokenizer = Tiny().Make();
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Next(0xF0), "");
  EXPECT_EQ(detokenizer.Next(0x9F), "");
  EXPECT_EQ(detokenizer.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Finish(), "");
  EXPECT_EQ(detokenizer.Next('a'), "a");
}

TEST(Detokenizer, Next_BytesThatAreNoCharacter_AreReplacedStretchByStretch) {
  const auto tokenizer = Tiny().Make();
  EXPECT_EQ(Decode(*tokenizer, {0xFF, 'a'}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(Decode(*tokenizer, {0xF0, 0x9F, 'a'}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(Decode(*tokenizer, {0xE2, 0x28, 0xA1}), "\xEF\xBF\xBD(\xEF\xBF\xBD");
}

TEST(Detokenizer, Next_NormalTokenOutsideTheByteMap_GivesItsOwnText) {
  Tiny tiny;
  const int32_t word = tiny.Add("\xE4\xB8\xAD \xE6\x96\x87");
  EXPECT_EQ(Decode(*tiny.Make(), {word}), "\xE4\xB8\xAD \xE6\x96\x87");
}

// ---- A real vocabulary

constexpr const char* kModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::filesystem::path ModelPath() {
  const char* directory = std::getenv("TRINE_MODELS");
  return std::filesystem::path(directory != nullptr ? directory : TRINE_MODELS_DIR) / kModelFile;
}

Metadata LoadModelMetadata() {
  auto store = OpenWeights(ModelPath().string());
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? (*store)->metadata() : Metadata();
}

class Smollm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ModelPath())) {
      GTEST_SKIP() << ModelPath() << " is not there; set TRINE_MODELS to the directory that has it";
    }
    auto made = Tokenizer::FromMetadata(LoadModelMetadata());
    ASSERT_TRUE(made.ok()) << made.status().message();
    tokenizer = std::move(*made);
    cases = nlohmann::json::parse(
        std::ifstream(std::filesystem::path(TRINE_TEST_DATA) / "smollm2_tokenizer.json"));
    ASSERT_GT(cases.size(), 100u);
  }

  std::unique_ptr<Tokenizer> tokenizer;
  nlohmann::json cases;  // [[text, ids], ...]
};

TEST_F(Smollm2, Encode_FixtureTexts_GivesTheSameIds) {
  for (const auto& [text, ids] : cases.get<std::vector<std::pair<std::string, Ids>>>()) {
    EXPECT_EQ(Encode(*tokenizer, text, Special::kParse), ids) << text;
  }
}

TEST_F(Smollm2, Decode_FixtureTexts_RoundTripUnlessSomethingWasLeftOut) {
  int round_trips = 0;
  for (const auto& [text, ids] : cases.get<std::vector<std::pair<std::string, Ids>>>()) {
    std::string bytes;
    for (int32_t id : ids) bytes += tokenizer->Piece(id);
    if (bytes != text) continue;  // a byte that the vocabulary lacks
    const bool control = std::any_of(ids.begin(), ids.end(), [this](int32_t id) {
      return tokenizer->Type(id) == TokenType::kControl;
    });
    if (control) continue;
    EXPECT_EQ(Decode(*tokenizer, ids), text);
    ++round_trips;
  }
  EXPECT_GT(round_trips, 150);
}

TEST_F(Smollm2, FromMetadata_ModelFile_NamesItsRules) {
  EXPECT_EQ(tokenizer->model(), "gpt2");
  EXPECT_EQ(tokenizer->pre(), "smollm");
  EXPECT_EQ(tokenizer->size(), 49152);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->end_of_generation(), (Ids{0, 2}));
}

}  // namespace
}  // namespace trine
