// Tokenizer::FromJson: small tokenizer.json files of every kind against the ids that another
// implementation gives (tests/data/tokenizers), and files that are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/text_fixtures.h"

namespace trine {
namespace {

using nlohmann::json;

std::string DataPath(const std::string& name) {
  return std::string(TRINE_TEST_DATA) + "/tokenizers/" + name;
}

json LoadJson(const std::string& name) {
  return json::parse(std::ifstream(DataPath(name)));
}

Result<std::unique_ptr<Tokenizer>> Read(const json& tokenizer, const json& config = nullptr,
                                        const json& generation = nullptr) {
  TextFiles files = {{"tokenizer.json", tokenizer.dump()}};
  if (!config.is_null()) files["tokenizer_config.json"] = config.dump();
  if (!generation.is_null()) files["generation_config.json"] = generation.dump();
  return Tokenizer::FromJson(TemporaryFolder(files).path() + "/tokenizer.json");
}

std::unique_ptr<Tokenizer> Make(const json& tokenizer, const json& config = nullptr,
                                const json& generation = nullptr) {
  auto made = Read(tokenizer, config, generation);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

class JsonTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(JsonTokenizer, Encode_FixtureTexts_GivesTheSameIds) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::FromJson(DataPath(name + ".json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ExpectCases(**tokenizer, name);
}

// qwen: NFC, flags of added tokens; traps: patterns that PCRE2 reads otherwise, removed pieces;
// unknown and fused: bytes without a token, a space in front, merges as lines.
INSTANTIATE_TEST_SUITE_P(Files, JsonTokenizer, testing::Values("qwen", "traps", "unknown", "fused"),
                         [](const auto& test) { return std::string(test.param); });

TEST(JsonTokenizer, Encode_MergeListedTwice_LastRankCounts) {
  json file = LoadJson("qwen.json");
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  file["model"]["merges"] = {"a b", "b c", {"a", "b"}};
  file["added_tokens"] = json::array();
  file["post_processor"] = nullptr;
  EXPECT_EQ(Encode(*Make(file), "abc"), (Ids{0, 4}));
}

TEST(JsonTokenizer, Encode_NormalizedControlToken_CountsOnlyWhereParsed) {
  const auto tokenizer = Tokenizer::FromJson(DataPath("traps.json"));
  ASSERT_TRUE(tokenizer.ok());
  const Ids parsed = Encode(**tokenizer, "<|both|><|start|>", Special::kParse);
  ASSERT_EQ(parsed.size(), 2u);
  const Ids mixed = Encode(**tokenizer, {{"<|start|>", Special::kAsText},
                                         {"<|both|><|start|>", Special::kParse},
                                         {"<|start|>", Special::kAsText}});
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), parsed[1]), 1);
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), parsed[0]), 1);
}

TEST(JsonTokenizer, Bos_PostProcessorAndConfig_AreJoined) {
  const json file = LoadJson("qwen.json");
  const auto plain = Make(file);
  const int32_t start = Encode(*plain, "<|start|>", Special::kParse)[0];
  const int32_t both = Encode(*plain, "<|both|>", Special::kParse)[0];
  EXPECT_EQ(plain->bos(), start);
  EXPECT_EQ(plain->eos(), both);
  EXPECT_TRUE(plain->add_bos());
  EXPECT_TRUE(plain->add_eos());
  EXPECT_EQ(plain->pad(), -1);
  EXPECT_EQ(plain->end_of_generation(), Ids{both});
  EXPECT_EQ(plain->model(), "gpt2");
  EXPECT_EQ(plain->pre(), "tokenizer.json");

  const auto other = Make(file, {{"add_bos_token", false},
                                 {"add_eos_token", false},
                                 {"bos_token", nullptr},
                                 {"eos_token", {{"content", "<|left|>"}}},
                                 {"pad_token", "<tool>"},
                                 {"chat_template", "{{ x }}"}});
  EXPECT_EQ(other->bos(), start);
  EXPECT_FALSE(other->add_bos());
  EXPECT_EQ(other->eos(), Encode(*plain, "<|left|>", Special::kParse)[0]);
  EXPECT_FALSE(other->add_eos());
  EXPECT_EQ(other->pad(), Encode(*plain, "<tool>")[0]);
  EXPECT_EQ(other->chat_template(), "{{ x }}");
}

TEST(JsonTokenizer, ChatTemplate_SeveralByName_DefaultCounts) {
  const json templates = {{{"name", "tools"}, {"template", "t"}},
                          {{"name", "default"}, {"template", "d"}}};
  EXPECT_EQ(Make(LoadJson("qwen.json"), {{"chat_template", templates}})->chat_template(), "d");
}

TEST(JsonTokenizer, ChatTemplate_FileOfItsOwn_WinsOverConfig) {
  const TemporaryFolder folder(TextFiles{{"tokenizer.json", LoadJson("qwen.json").dump()},
                                         {"tokenizer_config.json", R"({"chat_template": "old"})"},
                                         {"chat_template.jinja", "new"}});
  const auto tokenizer = Tokenizer::FromJson(folder.path() + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->chat_template(), "new");
}

TEST(JsonTokenizer, EndOfGeneration_GenerationConfig_Adds) {
  const json file = LoadJson("qwen.json");
  const auto plain = Make(file);
  const int32_t eos = plain->eos();
  const int32_t tool = Encode(*plain, "<tool>")[0];
  const int32_t left = Encode(*plain, "<|left|>", Special::kParse)[0];
  EXPECT_EQ(Make(file, nullptr, {{"eos_token_id", left}})->end_of_generation(), (Ids{eos, left}));
  const auto several = Make(file, nullptr, {{"eos_token_id", {tool, eos, tool}}});
  EXPECT_EQ(several->end_of_generation(), (Ids{eos, tool}));
  EXPECT_EQ(several->Type(tool), TokenType::kControl);
  EXPECT_NE(Encode(*several, "<tool>"), Ids{tool});
  const auto refused = Read(file, nullptr, {{"eos_token_id", {eos, 99999}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("generation_config.json.eos_token_id[1] is 99999"),
            std::string::npos)
      << refused.status().message();
}

TEST(JsonTokenizer, Type_UnknownTokenThatTextGives_IsUnknown) {
  const auto tokenizer = Tokenizer::FromJson(DataPath("unknown.json"));
  ASSERT_TRUE(tokenizer.ok());
  const int32_t unknown = Encode(**tokenizer, "\u00e9").back();
  EXPECT_EQ((*tokenizer)->Piece(unknown), "<unk>");
  EXPECT_EQ((*tokenizer)->Type(unknown), TokenType::kUnknown);
}

TEST(JsonTokenizer, Type_AddedTokens_AreControlOrUserDefined) {
  json file = LoadJson("qwen.json");
  file["added_tokens"].push_back({{"id", 2000},
                                  {"content", "far"},
                                  {"special", false},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false}});
  const auto tokenizer = Make(file);
  EXPECT_EQ(tokenizer->size(), 2001);
  EXPECT_EQ(tokenizer->Type(Encode(*tokenizer, "<tool>")[0]), TokenType::kUserDefined);
  EXPECT_EQ(tokenizer->Type(tokenizer->bos()), TokenType::kControl);
  EXPECT_EQ(tokenizer->Type(1999), TokenType::kUnused);
  EXPECT_EQ(tokenizer->Piece(1999), "");
  EXPECT_EQ(Encode(*tokenizer, "far"), Ids{2000});
}

// ---- Refusals

struct JsonRefusal {
  const char* name;
  void (*damage)(json* file, json* config);
  const char* message;  // a part of it
};

class JsonRefused : public testing::TestWithParam<JsonRefusal> {};

TEST_P(JsonRefused, FromJson_DamagedFile_NamesFieldValueAndRemedy) {
  json file = LoadJson("qwen.json");
  json config;
  GetParam().damage(&file, &config);
  const auto read = Read(file, config);
  ASSERT_FALSE(read.ok());
  const std::string& error = read.status().message();
  EXPECT_NE(error.find(GetParam().message), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

void SetPre(json* file, const json& first) {
  (*file)["pre_tokenizer"]["pretokenizers"][0] = first;
}

const JsonRefusal kJsonRefusals[] = {
    {"NotAnObject", [](json* f, json*) { *f = 1; }, "tokenizer.json is not an object"},
    {"Unigram", [](json* f, json*) { (*f)["model"]["type"] = "Unigram"; },
     "model.type is \"Unigram\"; supported: BPE"},
    {"Dropout", [](json* f, json*) { (*f)["model"]["dropout"] = 0.1; },
     "model.dropout is 0.1; it must be null"},
    {"Suffix", [](json* f, json*) { (*f)["model"]["end_of_word_suffix"] = "</w>"; },
     "model.end_of_word_suffix is \"</w>\""},
    {"NoVocab", [](json* f, json*) { (*f)["model"].erase("vocab"); }, "model.vocab is null"},
    {"IdIsText", [](json* f, json*) { (*f)["model"]["vocab"]["a"] = "1"; },
     "model.vocab[\"a\"] is \"1\"; an integer is needed"},
    {"IdTooLarge", [](json* f, json*) { (*f)["model"]["vocab"]["a"] = 1 << 27; },
     "model.vocab[\"a\"] is 134217728; ids from 0 to"},
    {"IdNegative", [](json* f, json*) { (*f)["model"]["vocab"]["a"] = -1; },
     "model.vocab[\"a\"] is -1"},
    {"IdTwice", [](json* f, json*) { (*f)["model"]["vocab"]["newone"] = 0; },
     "model.vocab[\"newone\"] is 0; '"},
    {"NoMerges", [](json* f, json*) { (*f)["model"].erase("merges"); }, "model.merges is null"},
    {"MergeOfThree",
     [](json* f, json*) {
       (*f)["model"]["merges"][3] = {"a", "b", "c"};
     },
     "model.merges[3] is an array; two tokens"},
    {"MergeOfNoTokens", [](json* f, json*) { (*f)["model"]["merges"][3] = "q xyz"; },
     "model.merges[3] is \"q xyz\"; two tokens"},
    {"MergeWithoutSpace", [](json* f, json*) { (*f)["model"]["merges"][3] = "th"; },
     "model.merges[3] is \"th\""},
    {"ByteFallbackWithoutBytes",
     [](json* f, json*) {
       (*f)["model"]["byte_fallback"] = true;
       (*f)["model"]["vocab"].erase("!");
       (*f)["model"]["merges"] = json::array();
     },
     "model.byte_fallback is true; model.vocab must have a token for each of the 256"},
    {"UnknownThatEndsTexts",
     [](json* f, json*) {
       (*f)["model"]["unk_token"] = "<|both|>";
       (*f)["model"]["vocab"].erase("!");
       (*f)["model"]["merges"] = json::array();
     },
     "model.unk_token is \"<|both|>\"; text would give it"},
    {"UnknownMissing", [](json* f, json*) { (*f)["model"]["unk_token"] = "<nope>"; },
     "model.unk_token is \"<nope>\"; there is no such token"},
    {"AddedWithoutFlag", [](json* f, json*) { (*f)["added_tokens"][1].erase("lstrip"); },
     "added_tokens[1].lstrip is null or missing; true or false"},
    {"AddedIdTaken", [](json* f, json*) { (*f)["added_tokens"][1]["id"] = 5; },
     "added_tokens[1].id is 5; another token has that id"},
    {"AddedTwice", [](json* f, json*) { (*f)["added_tokens"].push_back((*f)["added_tokens"][1]); },
     "content is \"<|both|>\"; the token has id"},
    {"SpecialNormalized", [](json* f, json*) { (*f)["added_tokens"][1]["normalized"] = true; },
     "added_tokens[1].normalized is true; of a special token it must be false"},
    {"Normalizer", [](json* f, json*) { (*f)["normalizer"]["type"] = "NFKC"; },
     "normalizer.type is \"NFKC\"; supported: NFC"},
    {"NormalizerInside",
     [](json* f, json*) {
       (*f)["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}};
     },
     "normalizer.normalizers[0].type is \"Lowercase\""},
    {"Metaspace",
     [](json* f, json*) {
       SetPre(f, {{"type", "Metaspace"}});
     },
     "pre_tokenizer.pretokenizers[0].type is \"Metaspace\"; supported: Split"},
    {"Merged",
     [](json* f, json*) {
       (*f)["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext";
     },
     "pretokenizers[0].behavior is \"MergedWithNext\"; supported: Isolated, Removed"},
    {"BadPattern",
     [](json* f, json*) { (*f)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(\na"; },
     "PCRE2 refuses it: missing closing parenthesis"},
    {"BehindByteLevel",
     [](json* f, json*) {
       (*f)["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
     },
     "pre_tokenizer.pretokenizers[2] is an object; nothing may follow ByteLevel"},
    {"NoByteLevel", [](json* f, json*) { (*f)["pre_tokenizer"]["pretokenizers"].erase(1); },
     "it needs a ByteLevel"},
    {"NoPre", [](json* f, json*) { (*f)["pre_tokenizer"] = nullptr; },
     "pre_tokenizer.type is null"},
    {"PrefixBehindSplit",
     [](json* f, json*) { (*f)["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
     "pretokenizers[1].add_prefix_space is true; it must be false"},
    {"Decoder", [](json* f, json*) { (*f)["decoder"]["type"] = "WordPiece"; },
     "decoder.type is \"WordPiece\"; supported: ByteLevel"},
    {"NoDecoder", [](json* f, json*) { f->erase("decoder"); }, "decoder is null or missing"},
    {"PostProcessor", [](json* f, json*) { (*f)["post_processor"]["type"] = "BertProcessing"; },
     "post_processor.type is \"BertProcessing\""},
    {"TemplateOfTwo",
     [](json* f, json*) {
       json& single = (*f)["post_processor"]["single"];
       single.insert(single.begin(), single[0]);
     },
     "post_processor.single[1] is an object; one token in front"},
    {"TemplateWithoutText",
     [](json* f, json*) { (*f)["post_processor"]["single"] = json::array(); },
     "post_processor.single is an array; it does not contain the text"},
    {"TemplateId",
     [](json* f, json*) { (*f)["post_processor"]["special_tokens"]["<|start|>"]["ids"] = {99999}; },
     "special_tokens.<|start|>.ids[0] is 99999; tokenizer.json has no token"},
    {"ConfigToken",
     [](json*, json* c) {
       *c = {{"eos_token", "<nope>"}};
     },
     "tokenizer_config.json.eos_token is \"<nope>\"; tokenizer.json has no such token"},
    {"ConfigContradicts",
     [](json*, json* c) {
       *c = {{"bos_token", "<|left|>"}};
     },
     "tokenizer_config.json.bos_token is \"<|left|>\"; post_processor adds token"},
    {"ConfigFlag",
     [](json*, json* c) {
       *c = {{"add_bos_token", "yes"}};
     },
     "tokenizer_config.json.add_bos_token is \"yes\"; true or false"},
    {"BosWantedButMissing",
     [](json* f, json* c) {
       (*f)["post_processor"] = nullptr;
       *c = {{"add_bos_token", true}};
     },
     "tokenizer_config.json.bos_token is missing; add it or set tokenizer_config.json.add_bos"},
    {"ConfigNotAnObject", [](json*, json* c) { *c = json::array(); },
     "tokenizer_config.json is not an object"},
    {"LongValue", [](json* f, json*) { (*f)["model"]["type"] = std::string(1000, 'x'); },
     "xxx\"...; supported: BPE"},
};

INSTANTIATE_TEST_SUITE_P(Cases, JsonRefused, testing::ValuesIn(kJsonRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(JsonTokenizer, FromJson_NotJson_NamesFileAndPlace) {
  const TemporaryFolder folder(TextFiles{{"tokenizer.json", "{\"model\": \n {\"a\" 1}}"}});
  const std::string path = folder.path() + "/tokenizer.json";
  const auto read = Tokenizer::FromJson(path);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(
      read.status().message().find(path + ": tokenizer.json is no JSON: parse error at line 2"),
      std::string::npos)
      << read.status().message();
  EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  const auto absent = Tokenizer::FromJson("/nowhere/tokenizer.json");
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.status().message().find("/nowhere/tokenizer.json"), std::string::npos);
}

// ---- Real files

std::unique_ptr<Tokenizer> OpenShared(const std::string& name) {
  auto made = Tokenizer::FromJson(SharedTokenizer(name) / "tokenizer.json");
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(RealJson, Qwen3_KnownTextAndEnds) {
  TRINE_SKIP_WITHOUT_SHARED(SharedTokenizer("qwen3"));
  const auto tokenizer = OpenShared("qwen3");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Encode(*tokenizer, "<|im_start|>Hello, cafe\u0301 12!<|im_end|>", Special::kParse),
            (Ids{151644, 9707, 11, 51950, 220, 16, 17, 0, 151645}));
  EXPECT_EQ(tokenizer->size(), 151669);
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->eos(), 151645);
  EXPECT_EQ(tokenizer->pad(), 151643);
  EXPECT_EQ(tokenizer->end_of_generation(), (Ids{151643, 151645}));
  EXPECT_NE(tokenizer->chat_template().find("<|im_start|>"), std::string_view::npos);
}

TEST(RealJson, Llama31_KnownTextAndEnds) {
  TRINE_SKIP_WITHOUT_SHARED(SharedTokenizer("llama3.1"));
  const auto tokenizer = OpenShared("llama3.1");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Encode(*tokenizer, "Hello, world 1234", Special::kParse),
            (Ids{9906, 11, 1917, 220, 4513, 19}));
  EXPECT_EQ(tokenizer->bos(), 128000);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->eos(), 128009);
  EXPECT_FALSE(tokenizer->add_eos());
  EXPECT_EQ(tokenizer->end_of_generation(), (Ids{128001, 128009}));
}

}  // namespace
}  // namespace trine
