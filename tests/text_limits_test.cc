// What a hostile or unusual tokenizer file may not do: take long, lose text, or let text end a
// generation.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "src/text/bpe_tokenizer.h"
#include "src/text/merger.h"
#include "src/text/piece_list.h"
#include "tests/text_fixtures.h"

namespace trine {
namespace {

using nlohmann::json;

json LoadQwen() {
  return json::parse(std::ifstream(std::string(TRINE_TEST_DATA) + "/tokenizers/qwen.json"));
}

Result<std::unique_ptr<Tokenizer>> Read(const json& file, const json& config = nullptr) {
  HfTokenizerFiles files;
  files.tokenizer = file.dump();
  if (!config.is_null()) files.tokenizer_config = config.dump();
  return ReadTokenizerJson(files);
}

json AddedToken(int id, const std::string& text, bool special) {
  return {{"id", id},        {"content", text}, {"special", special}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
}

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// ---- Special tokens

TEST(TextLimits, SpaceThatStripsBothSides_IsOneTokenForARun) {
  json file = LoadQwen();
  json token = AddedToken(900, " ", false);
  token["lstrip"] = token["rstrip"] = true;
  file["added_tokens"].push_back(token);
  const auto tokenizer = Read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(Encode(**tokenizer, "a   b"), (Ids{64, 900, 65}));
}

TEST(TextLimits, LongAddedToken_IsRefusedByName) {
  json file = LoadQwen();
  file["added_tokens"].push_back(AddedToken(900, std::string(256, 'a'), false));
  EXPECT_TRUE(Read(file).ok());
  file["added_tokens"].back()["content"] = std::string(257, 'a');
  const auto read = Read(file);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find(".content is \"aaa"), std::string::npos)
      << read.status().message();
  EXPECT_NE(read.status().message().find("at most 256"), std::string::npos);
}

TEST(TextLimits, LongSpecialTokenOfMetadata_IsRefusedByName) {
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined, TokenType::kUnknown}) {
    Tiny tiny;
    tiny.Add(std::string(256, '<'), type);
    EXPECT_EQ(tiny.Error(), "");
    tiny.tokens.back() += "<";
    EXPECT_NE(tiny.Error().find("tokenizer.ggml.tokens[256] is 257 bytes long; at most 256"),
              std::string::npos)
        << tiny.Error();
  }
}

// ---- Bytes without a token

std::string EncodeError(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, Special::kAsText);
  return ids.ok() ? "" : ids.status().message();
}

TEST(TextLimits, ByteWhoseTokenIsSpecial_IsAnErrorNotSilence) {
  json file = LoadQwen();
  file["added_tokens"].push_back(AddedToken(file["model"]["vocab"]["s"], "s", true));
  const auto tokenizer = Read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_NE(EncodeError(**tokenizer, "abs1").find("byte 0x73"), std::string::npos)
      << EncodeError(**tokenizer, "abs1");
  EXPECT_EQ(EncodeError(**tokenizer, "ab1"), "");
}

TEST(TextLimits, ByteWithoutTokenInMetadata_IsAnErrorAtTheText) {
  Tiny tiny;
  tiny.types['s'] = static_cast<int64_t>(TokenType::kControl);
  const auto tokenizer = tiny.Make();
  EXPECT_NE(EncodeError(*tokenizer, "abs1").find("byte 0x73"), std::string::npos);
  EXPECT_EQ(Encode(*tokenizer, "ab1"), (Ids{'a', 'b', '1'}));
}

// "st" is no token, only on the way to one, so that it comes apart behind the merging.
TEST(TextLimits, ByteWithoutTokenInsideAMerge_IsAnError) {
  Tiny tiny;
  tiny.merges.push_back("s t");
  tiny.types['t'] = static_cast<int64_t>(TokenType::kControl);
  EXPECT_NE(EncodeError(*tiny.Make(), "ast").find("byte 0x74"), std::string::npos);
}

// ---- Tokens that begin and end texts

// A normal token stays what it is, though a file may end texts with it: words are made of those.
TEST(TextLimits, AddedEndsOfMetadata_AreControl) {
  for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id"}) {
    Tiny tiny;
    const int32_t end = tiny.Add("<|end|>", TokenType::kUserDefined);
    tiny.Set(key, int64_t{end});
    const auto tokenizer = tiny.Make();
    EXPECT_EQ(tokenizer->Type(end), TokenType::kControl) << key;
    EXPECT_EQ(Encode(*tokenizer, "<|end|>", Special::kParse), Ids{end}) << key;
    EXPECT_EQ(Encode(*tokenizer, "<|end|>").size(), 7u) << key;
  }
  Tiny tiny;
  tiny.Set("eos_token_id", int64_t{'b'});
  EXPECT_EQ(Encode(*tiny.Make(), "ab"), (Ids{'a', 'b'}));
}

TEST(TextLimits, EndsOfJson_AreControlWhateverTheirFlags) {
  json file = LoadQwen();
  file["post_processor"] = nullptr;
  file["added_tokens"].push_back(AddedToken(900, "<|end|>", false));
  for (const bool normalized : {false, true}) {
    file["added_tokens"].back()["normalized"] = normalized;
    for (const char* key : {"bos_token", "eos_token"}) {
      const auto tokenizer = Read(file, {{key, "<|end|>"}});
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
      EXPECT_EQ((*tokenizer)->Type(900), TokenType::kControl) << key;
      EXPECT_EQ(Encode(**tokenizer, "<|end|>", Special::kParse), Ids{900}) << key;
      const Ids as_text = Encode(**tokenizer, "<|end|>");
      EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 900), 0) << key;
    }
  }
}

TEST(TextLimits, EndThatMergingWouldGive_IsControl) {
  json file = LoadQwen();
  file["post_processor"] = nullptr;
  const auto plain = Read(file);
  ASSERT_TRUE(plain.ok());
  const Ids the = Encode(**plain, "the");
  ASSERT_EQ(the.size(), 1u);
  const auto tokenizer = Read(file, {{"eos_token", "the"}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->end_of_generation(), the);
  EXPECT_EQ(Encode(**tokenizer, "the", Special::kParse), the);
  const Ids as_text = Encode(**tokenizer, "the");
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), the[0]), 0);
  EXPECT_FALSE(as_text.empty());
}

// ---- Hash tables

// A change of the top bit passes a multiplication unmixed and is taken back eight bytes later, so
// that without a secret multiplier all of these collide.
TEST(TextLimits, PiecesMadeToCollide_AreFoundInLinearTime) {
  constexpr int kPairs = 15;
  PieceList pieces;
  for (int choice = 0; choice < 1 << kPairs; ++choice) {
    std::string piece(16 * kPairs + 8, 'a');
    for (size_t pair = 0; pair < kPairs; ++pair) {
      if ((choice >> pair & 1) == 0) continue;
      piece[16 * pair + 7] ^= '\x80';
      piece[16 * pair + 11] ^= '\x80';
      piece[16 * pair + 15] ^= '\x80';
    }
    pieces.Append(piece);
  }
  const Stopwatch watch;
  PieceIndex index(pieces);
  for (int32_t id = 0; id < pieces.size(); ++id) ASSERT_EQ(index.Insert(id), -1);
  EXPECT_EQ(index.Find(pieces[12345]), 12345);
  EXPECT_LT(watch.Seconds(), 2);
}

// Multiples of the golden ratio's inverse: a multiplication by it gives 1, 2, 3 ... from there on.
TEST(TextLimits, PairsMadeToCollide_AreFoundInLinearTime) {
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - 0x9E3779B97F4A7C15u * inverse;
  MergeTable table;
  const Stopwatch watch;
  for (uint64_t i = 1; i <= 40'000; ++i) {
    // The upper half of the product equals the lower: their difference is nought.
    const uint64_t pair = (i << 32 | i) * inverse;
    table.Insert(static_cast<int32_t>(pair >> 32), static_cast<int32_t>(pair), {1, 1});
  }
  EXPECT_LT(watch.Seconds(), 1);
}

// ---- Patterns

TEST(TextLimits, SlowPattern_EndsWithinOneMatch) {
  const std::string text(200'000, 'a');
  for (const char* pattern : {"(?<=a)(?=a*b)", "a*[bc]", "(?:a(?=a*[bc]))*d", "(?:a++[bc]|a)*d",
                              "(?:a|(?=a{3,}[bc]))*d"}) {
    const auto words = PreTokenizer::Create({{pattern}});
    ASSERT_TRUE(words.ok()) << words.status().message();
    RegexScratch scratch(text.size());
    const Stopwatch watch;
    const Status status = (*words)->Split(text, &scratch, [](auto) {});
    EXPECT_LT(watch.Seconds(), 6) << pattern;
    if (std::string_view(pattern) != "(?<=a)(?=a*b)") continue;  // others may be quick
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("time limit exceeded"), std::string::npos);
  }
}

TEST(TextLimits, DigitsInThrees_StillSplit) {
  const auto words = PreTokenizer::Create({{R"((?=(\d{3})+(?!\d)))"}});
  ASSERT_TRUE(words.ok()) << words.status().message();
  const std::string text = "1234567 x 12345";
  RegexScratch scratch(text.size());
  std::string joined;
  ASSERT_TRUE((*words)->Split(text, &scratch, [&](auto p) { joined.append(p).append("|"); }).ok());
  EXPECT_EQ(joined, "1|234|567 x 12|345|");
}

// ---- Messages

TEST(TextLimits, LongTextOfAFile_IsCutInMessages) {
  const std::string big(5'000, 'x');
  std::vector<json> files(4, LoadQwen());
  files[0]["model"]["vocab"][big] = "one";
  files[1]["post_processor"]["special_tokens"] = json::object();
  files[1]["post_processor"]["single"][0] = {{"SpecialToken", {{"id", big + "\n"}}}};
  files[2]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?R)" + big;
  files[3]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      "(?" + std::string(9'000, 'i') + "R)";
  for (const json& file : files) {
    const auto read = Read(file);
    ASSERT_FALSE(read.ok());
    EXPECT_LT(read.status().message().size(), 400u) << read.status().message();
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  }
  HfTokenizerFiles no_json;
  no_json.tokenizer = "{\"a\": \"" + big;
  const auto broken = ReadTokenizerJson(no_json);
  ASSERT_FALSE(broken.ok());
  EXPECT_LT(broken.status().message().size(), 400u);
}

}  // namespace
}  // namespace trine
