// SentencePiece's BPE from GGUF metadata: a vocabulary made by hand, and trained ones against the
// ids of libsentencepiece (tests/data/tokenizers).
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "src/weights/weight_store.h"
#include "tests/text_fixtures.h"

namespace trine {
namespace {

constexpr const char* kMark = "\u2581";

struct TinyPieces {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  std::vector<double> scores = {0, 0, 0};
  std::map<std::string, MetaValue> more = {{"tokenizer.ggml.model", std::string("llama")}};

  int32_t Add(const std::string& token, double score, TokenType type = TokenType::kNormal) {
    tokens.push_back(token);
    types.push_back(static_cast<int64_t>(type));
    scores.push_back(score);
    return static_cast<int32_t>(tokens.size() - 1);
  }

  // Returns the id of byte 0.
  int32_t AddBytes() {
    const auto first = static_cast<int32_t>(tokens.size());
    constexpr char kHex[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      Add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", 0, TokenType::kByte);
    }
    return first;
  }

  Result<std::unique_ptr<Tokenizer>> Read() const {
    Metadata meta;
    for (const auto& [key, value] : more) meta.Insert(key, value);
    meta.Insert("tokenizer.ggml.tokens", tokens);
    meta.Insert("tokenizer.ggml.token_type", types);
    meta.Insert("tokenizer.ggml.scores", scores);
    return Tokenizer::FromMetadata(meta);
  }

  std::unique_ptr<Tokenizer> Make() const {
    auto made = Read();
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }

  void Set(const std::string& key, MetaValue value) {
    more["tokenizer.ggml." + key] = std::move(value);
  }
};

TEST(SentencePiece, Encode_HighestScoreFirst_LeftmostAmongEquals) {
  TinyPieces tiny;
  tiny.Set("add_space_prefix", false);
  const int32_t a = tiny.Add("a", -10), b = tiny.Add("b", -11), c = tiny.Add("c", -12);
  const int32_t ab = tiny.Add("ab", -2), bc = tiny.Add("bc", -1);
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{a, bc}));
  EXPECT_EQ(Encode(*tokenizer, "abab"), (Ids{ab, ab}));
  EXPECT_EQ(Encode(*tokenizer, "cb"), (Ids{c, b}));
  tiny.scores[static_cast<size_t>(ab)] = -1;
  EXPECT_EQ(Encode(*tiny.Make(), "abc"), (Ids{ab, c}));
}

TEST(SentencePiece, Encode_SpacePrefix_OnceAndBehindControlTokens) {
  TinyPieces tiny;
  const int32_t mark = tiny.Add(kMark, -5), x = tiny.Add("x", -6);
  const int32_t mark_x = tiny.Add(std::string(kMark) + "x", -1);
  const int32_t tool = tiny.Add("<t>", 0, TokenType::kUserDefined);
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, ""), Ids{});
  EXPECT_EQ(Encode(*tokenizer, "x"), Ids{mark_x});
  EXPECT_EQ(Encode(*tokenizer, " x"), (Ids{mark, mark_x}));
  EXPECT_EQ(Encode(*tokenizer, "x x\u2581x"), (Ids{mark_x, mark_x, mark_x}));
  EXPECT_EQ(Encode(*tokenizer, "<s>x</s>", Special::kParse), (Ids{1, mark_x, 2}));
  EXPECT_EQ(Encode(*tokenizer, "x<t>x"), (Ids{mark_x, tool, x}));
  EXPECT_TRUE(tokenizer->adds_space());
  tiny.Set("add_space_prefix", false);
  EXPECT_EQ(Encode(*tiny.Make(), "x"), Ids{x});
}

TEST(SentencePiece, Encode_CharacterWithoutToken_IsBytesOrOneUnknown) {
  TinyPieces tiny;
  tiny.Set("add_space_prefix", false);
  const int32_t a = tiny.Add("a", -1);
  EXPECT_EQ(Encode(*tiny.Make(), "a\u00e9\u6f22a"), (Ids{a, 0, a}));
  const int32_t zero = tiny.AddBytes();
  EXPECT_EQ(Encode(*tiny.Make(), "a\u00e9a"), (Ids{a, zero + 0xC3, zero + 0xA9, a}));
}

TEST(SentencePiece, Encode_CharacterOnlyInsideTokens_StillMerges) {
  TinyPieces tiny;
  tiny.Set("add_space_prefix", false);
  const int32_t zero = tiny.AddBytes();
  const int32_t xy = tiny.Add("xy", -1);
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(Encode(*tokenizer, "xyx"), (Ids{xy, zero + 'x'}));
}

TEST(SentencePiece, Encode_ControlTextAsText_NeverGivesTheToken) {
  TinyPieces tiny;
  tiny.AddBytes();
  for (const char* part : {"<", "/", "s", ">", "</", "s>"}) tiny.Add(part, -1);
  const auto tokenizer = tiny.Make();
  for (const int32_t id : Encode(*tokenizer, "<s></s><unk><0x0A>")) {
    EXPECT_NE(tokenizer->Type(id), TokenType::kControl);
    EXPECT_NE(tokenizer->Type(id), TokenType::kUnknown);
  }
}

TEST(SentencePiece, Encode_TwentyMegabytesOfSpaces_TakesNLogN) {
  TinyPieces tiny;
  tiny.Add(kMark, -9);
  const int32_t two = tiny.Add(std::string(kMark) + kMark, -2);
  const int32_t four = tiny.Add(Repeat(kMark, 4), -1);
  EXPECT_EQ(Encode(*tiny.Make(), std::string(20'000'001, ' ')).size(), 5'000'001u);
  EXPECT_EQ(Encode(*tiny.Make(), std::string(5, ' ')), (Ids{four, two}));
}

TEST(SentencePiece, Decode_FirstSpaceOfAText_IsDropped) {
  TinyPieces tiny;
  const int32_t zero = tiny.AddBytes();
  const int32_t mark = tiny.Add(kMark, -5);
  const int32_t word = tiny.Add(std::string(kMark) + "hi", -1);
  const auto tokenizer = tiny.Make();
  EXPECT_EQ(tokenizer->Piece(word), " hi");
  EXPECT_EQ(tokenizer->Piece(zero + 10), "\n");
  EXPECT_EQ(Decode(*tokenizer, {1, word, word, 2}), "hi hi");
  EXPECT_EQ(Decode(*tokenizer, {mark, word}), " hi");
  EXPECT_EQ(Decode(*tokenizer, {zero + ' ', word}), "  hi");  // a byte is no mark
  Detokenizer continuation(*tokenizer);
  EXPECT_EQ(continuation.Next(word), " hi");
  tiny.Set("add_space_prefix", false);
  EXPECT_EQ(Decode(*tiny.Make(), {word}), " hi");
}

TEST(SentencePiece, Decode_ByteTokens_FormCharacters) {
  TinyPieces tiny;
  const int32_t zero = tiny.AddBytes();
  EXPECT_EQ(Decode(*tiny.Make(), {zero + 0xC3, zero + 0xA9}), "\u00e9");
}

TEST(SentencePiece, Bos_NoKeys_AreTheUsualOnes) {
  TinyPieces tiny;
  EXPECT_EQ(tiny.Make()->bos(), 1);
  EXPECT_EQ(tiny.Make()->eos(), 2);
  EXPECT_TRUE(tiny.Make()->add_bos());
  EXPECT_FALSE(tiny.Make()->add_eos());
  EXPECT_EQ(tiny.Make()->model(), "llama");
  EXPECT_EQ(tiny.Make()->pre(), "");
  EXPECT_EQ(tiny.Make()->end_of_generation(), Ids{2});
  tiny.Set("add_eos_token", true);
  EXPECT_TRUE(tiny.Make()->add_eos());
}

class TrainedPieces : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Tokenizer> Open() {
    auto store = OpenWeights(std::string(TRINE_TEST_DATA) + "/tokenizers/" + GetParam() + ".gguf");
    EXPECT_TRUE(store.ok()) << store.status().message();
    if (!store.ok()) return nullptr;
    auto made = Tokenizer::FromMetadata((*store)->metadata());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
};

TEST_P(TrainedPieces, Encode_FixtureTexts_GivesTheSameIds) {
  const auto tokenizer = Open();
  ASSERT_NE(tokenizer, nullptr);
  const TokenizerCases cases = LoadCases(GetParam());
  EXPECT_GT(cases.size(), 100u);
  for (const auto& [text, unused, ids] : cases) {
    EXPECT_EQ(Encode(*tokenizer, text), ids) << nlohmann::json(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TrainedPieces, testing::Values("spm_bytes", "spm_unknown"),
                         [](const auto& test) { return std::string(test.param); });

// ---- Refusals

struct PieceRefusal {
  const char* name;
  void (*damage)(TinyPieces*);
  const char* message;  // a part of it
};

class PiecesRefused : public testing::TestWithParam<PieceRefusal> {};

TEST_P(PiecesRefused, FromMetadata_DamagedVocabulary_NamesKeyAndValues) {
  TinyPieces tiny;
  tiny.Add("a", -1);
  GetParam().damage(&tiny);
  const auto read = tiny.Read();
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find(GetParam().message), std::string::npos)
      << read.status().message();
}

const PieceRefusal kPieceRefusals[] = {
    {"ScoresTooFew", [](TinyPieces* t) { t->scores.pop_back(); },
     "tokenizer.ggml.scores is 3 entries long; model 'llama' needs one for each of the 4"},
    {"ScoresMissing", [](TinyPieces* t) { t->Set("scores", std::vector<double>{}); },
     "tokenizer.ggml.scores is 0 entries long"},
    {"ScoreNotANumber",
     [](TinyPieces* t) { t->scores[3] = std::numeric_limits<double>::quiet_NaN(); },
     "tokenizer.ggml.scores[3] is not a number"},
    {"ByteOfAnotherForm", [](TinyPieces* t) { t->Add("<0xag>", 0, TokenType::kByte); },
     "tokenizer.ggml.tokens[4] is a byte token '<0xag>'"},
    {"BytesTooFew", [](TinyPieces* t) { t->Add("<0x0A>", 0, TokenType::kByte); },
     "has 1 byte tokens, but not one for each"},
    {"TokenTwice", [](TinyPieces* t) { t->Add("a", -3); }, "tokens 3 and 4 are both 'a'"},
    {"TokenTooLong", [](TinyPieces* t) { t->Add(std::string(257, 'x'), -3); },
     "tokenizer.ggml.tokens[4] is 257 bytes long"},
    {"Squeezing", [](TinyPieces* t) { t->Set("remove_extra_whitespaces", true); },
     "tokenizer.ggml.remove_extra_whitespaces is true"},
    {"Charsmap", [](TinyPieces* t) { t->Set("precompiled_charsmap", std::vector<int64_t>{1}); },
     "tokenizer.ggml.precompiled_charsmap"},
    {"EosWantedButOutOfRange", [](TinyPieces* t) { t->Set("eos_token_id", int64_t{9}); },
     "eos_token_id is 9"},
};

INSTANTIATE_TEST_SUITE_P(Cases, PiecesRefused, testing::ValuesIn(kPieceRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SentencePiece, FromMetadata_NoTypes_IsRefused) {
  Metadata meta;
  meta.Insert("tokenizer.ggml.model", std::string("llama"));
  meta.Insert("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  meta.Insert("tokenizer.ggml.scores", std::vector<double>{0});
  const auto read = Tokenizer::FromMetadata(meta);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("token_type is missing"), std::string::npos);
}

}  // namespace
}  // namespace trine
