// src/text with small hand-made vocabularies, and against ids that another implementation computed
// for a real one (tests/data/smollm2_tokenizer.json; the vocabulary comes from the model file).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/weights/weight_store.h"
#include "tests/text_fixtures.h"

namespace trine {
namespace {

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
  EXPECT_EQ(Encode(*tokenizer, "<think><unk>"), (Ids{think, '<', 'u', 'n', 'k', '>'}));
}

TEST_F(SpecialTokenTest, Encode_SeveralFit_LeftmostThenLongest) {
  EXPECT_EQ(Encode(*tokenizer, "<end><end><end>", Special::kParse), (Ids{end_end, end}));
  Tiny overlapping;
  const int32_t ab = overlapping.Add("ab", TokenType::kControl);
  overlapping.Add("bcd", TokenType::kControl);
  EXPECT_EQ(Encode(*overlapping.Make(), "abcd", Special::kParse), (Ids{ab, 'c', 'd'}));
}

// ---- Spans

TEST_F(SpecialTokenTest, EncodeSpans_ControlTextInsideAUserSpan_StaysText) {
  EXPECT_EQ(
      Encode(*tokenizer,
             {{"<end>", Special::kParse}, {"<end>", Special::kAsText}, {"<end>", Special::kParse}}),
      (Ids{end, '<', 'e', 'n', 'd', '>', end}));
}

TEST_F(SpecialTokenTest, EncodeSpans_ControlTextAcrossABorder_IsTextUnlessBothParse) {
  const Ids text = {'<', 'e', 'n', 'd', '>'};
  for (size_t cut = 1; cut < 5; ++cut) {
    const std::string_view all = "<end>";
    const std::string_view left = all.substr(0, cut), right = all.substr(cut);
    EXPECT_EQ(Encode(*tokenizer, {{left, Special::kParse}, {right, Special::kAsText}}), text);
    EXPECT_EQ(Encode(*tokenizer, {{left, Special::kAsText}, {right, Special::kParse}}), text);
    EXPECT_EQ(Encode(*tokenizer, {{left, Special::kParse}, {right, Special::kParse}}), Ids{end});
    EXPECT_EQ(Encode(*tokenizer,
                     {{left, Special::kParse}, {"", Special::kAsText}, {right, Special::kParse}}),
              Ids{end});
  }
}

TEST_F(SpecialTokenTest, EncodeSpans_LongerTokenReachesIntoUserText_ShorterOneCounts) {
  EXPECT_EQ(Encode(*tokenizer, {{"<end>", Special::kParse}, {"<end>", Special::kAsText}}),
            (Ids{end, '<', 'e', 'n', 'd', '>'}));
}

TEST_F(SpecialTokenTest, EncodeSpans_UserDefinedTokenAcrossABorder_Counts) {
  EXPECT_EQ(Encode(*tokenizer, {{"<thi", Special::kAsText}, {"nk>", Special::kParse}}), Ids{think});
}

TEST(Tokenizer, EncodeSpans_BorderInsideAWordOrCharacter_IsNoBorderOfTokens) {
  Tiny tiny;
  const int32_t ab = tiny.AddMerge("a", "b");
  const int32_t accent = tiny.AddMerge(Symbol(0xC3), Symbol(0xA9));
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, {{"a", Special::kAsText}, {"b", Special::kParse}}), Ids{ab});
  EXPECT_EQ(Encode(*tokenizer, {{"\xC3", Special::kAsText}, {"\xA9", Special::kParse}}),
            Ids{accent});
  EXPECT_EQ(Encode(*tokenizer, {}), Ids{});
  const Tokenizer::TextSpan broken[] = {{"ab", Special::kParse}, {"c\xFF", Special::kParse}};
  const auto refused = tokenizer->Encode(broken);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("byte 3 of 4"), std::string::npos);
}

TEST_F(SpecialTokenTest, EncodeSpans_RandomCuts_GiveTheIdsOfTheWholeText) {
  std::mt19937 random(3);
  const std::string text = "a <end> b<think>'s 12  <end><end>x<unk>\n\n ";
  for (const Special special : {Special::kParse, Special::kAsText}) {
    const Ids whole = Encode(*tokenizer, text, special);
    for (int round = 0; round < 50; ++round) {
      std::vector<Tokenizer::TextSpan> spans;
      for (size_t at = 0; at < text.size();) {
        const size_t length = random() % 6;
        spans.push_back({std::string_view(text).substr(at, length), special});
        at += length;
      }
      const auto ids = tokenizer->Encode(spans);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(*ids, whole);
    }
  }
}

// ---- What a token is

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

TEST(Tokenizer, Eos_KeysDecide) {
  Tiny tiny;
  EXPECT_EQ(tiny.Make()->eos(), -1);
  EXPECT_EQ(tiny.Make()->pad(), -1);
  EXPECT_EQ(tiny.Make()->chat_template(), "");
  tiny.Set("eos_token_id", int64_t{9});
  tiny.Set("padding_token_id", int64_t{8});
  tiny.more["tokenizer.chat_template"] = std::string("{{ x }}");
  EXPECT_EQ(tiny.Make()->eos(), 9);
  EXPECT_EQ(tiny.Make()->pad(), 8);
  EXPECT_FALSE(tiny.Make()->add_eos());
  EXPECT_FALSE(tiny.Make()->adds_space());
  EXPECT_EQ(tiny.Make()->chat_template(), "{{ x }}");
  tiny.Set("add_eos_token", true);
  EXPECT_TRUE(tiny.Make()->add_eos());
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
    {"EosWantedButMissing",
     [](Tiny* t) { t->Set("add_eos_token", true); },
     {"tokenizer.ggml.eos_token_id is missing", "tokenizer.ggml.add_eos_token"}},
    {"ChatTemplateOfAnotherType",
     [](Tiny* t) { t->more["tokenizer.chat_template"] = true; },
     {"tokenizer.chat_template", "string"}},
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
