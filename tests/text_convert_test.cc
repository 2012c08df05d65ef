// Tokenizers between GGUF's metadata and Hugging Face's files: there and back gives the same
// metadata, and all three give the same ids. tests/oracle/check_exports.py has transformers read
// what is exported here.
#include <gtest/gtest.h>

#include <string>

#include "src/text/tokenizer_files.h"
#include "src/weights/weight_store.h"
#include "tests/fixtures.h"
#include "tests/text_fixtures.h"

namespace trine {
namespace {

using nlohmann::json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

Metadata OpenMetadata(const std::string& path) {
  auto store = OpenWeights(path);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? (*store)->metadata() : Metadata();
}

TextFiles Export(const Metadata& meta) {
  const auto files = ToHuggingFace(meta);
  EXPECT_TRUE(files.ok()) << files.status().message();
  if (!files.ok()) return {};
  return {{"tokenizer.json", files->tokenizer},
          {"tokenizer_config.json", files->tokenizer_config},
          {"generation_config.json", files->generation_config}};
}

Metadata Import(const TextFiles& files, int64_t vocab_rows) {
  Metadata meta;
  const TemporaryFolder folder(files);
  const Status imported = FromHuggingFace(folder.path(), vocab_rows, meta);
  EXPECT_TRUE(imported.ok()) << imported.message();
  return meta;
}

int64_t RowsOf(const Metadata& meta) {
  return static_cast<int64_t>((*meta.Strings(kTokens))->size());
}

Metadata ThereAndBack(const Metadata& meta) {
  return Import(Export(meta), RowsOf(meta));
}

// The tokenizer's keys, those left out that have no counterpart.
std::map<std::string, MetaValue> TokenizerKeys(const Metadata& meta) {
  std::map<std::string, MetaValue> keys;
  for (const auto& [key, value] : meta.entries()) {
    const bool wanted = key.starts_with("tokenizer.") || key.starts_with("general.sampling.");
    if (wanted && key != "tokenizer.ggml.add_space_prefix") keys.emplace(key, value);
  }
  return keys;
}

void ExpectSameKeys(const Metadata& got, const Metadata& expected) {
  const auto got_keys = TokenizerKeys(got);
  for (const auto& [key, value] : TokenizerKeys(expected)) {
    ASSERT_TRUE(got_keys.contains(key)) << key;
    EXPECT_TRUE(got_keys.at(key) == value) << key;
  }
  EXPECT_EQ(got_keys.size(), TokenizerKeys(expected).size());
}

// The value of a key; `false` if there is none.
MetaValue At(const Metadata& meta, const std::string& key) {
  const MetaValue* value = meta.Find(key);
  return value == nullptr ? MetaValue(false) : *value;
}

void ExpectInt(const Metadata& meta, const std::string& key, int64_t value) {
  EXPECT_EQ(*meta.IntOr("tokenizer.ggml." + key, -1), value) << key;
}

std::unique_ptr<Tokenizer> FromMeta(const Metadata& meta) {
  auto made = Tokenizer::FromMetadata(meta);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : Tiny().Make();
}

std::unique_ptr<Tokenizer> FromFiles(const TextFiles& files) {
  auto made = Tokenizer::FromJson(TemporaryFolder(files).path() + "/tokenizer.json");
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : Tiny().Make();
}

// Over texts of every kind, and those in between with this vocabulary's control tokens.
void ExpectSameIds(const Tokenizer& got, const Tokenizer& expected) {
  std::vector<std::string> texts;
  for (const char* name : {"qwen", "spm_bytes"}) {
    for (const auto& [text, parsed, as_text] : LoadCases(name)) texts.push_back(text);
  }
  const size_t plain = texts.size();
  for (int32_t id = 0; id < static_cast<int32_t>(expected.size()); ++id) {
    const TokenType type = expected.Type(id);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    const std::string& text = texts[static_cast<size_t>(id) % plain];
    texts.push_back(text + std::string(expected.Piece(id)) + text);
  }
  for (const std::string& text : texts) {
    for (const Special special : {Special::kParse, Special::kAsText}) {
      EXPECT_EQ(Encode(got, text, special), Encode(expected, text, special)) << json(text);
    }
  }
}

// ---- Byte-level BPE

// One of everything: gaps, padding, ends, and a control token in front of the others.
struct Everything : Tiny {
  Everything() {
    AddMerge("a", "b");
    AddMerge("ab", "ab");
    const int32_t turn_end = Add("<turn>", TokenType::kControl);
    Add("[PAD259]", TokenType::kUnused);
    AddMerge("\xC4\xA0", "a");
    const int32_t bos = Add("<begin>", TokenType::kControl);
    const int32_t eos = Add("<|im_end|>", TokenType::kControl);
    Add("<|endoftext|>", TokenType::kControl);
    Add("<think>", TokenType::kUserDefined);
    for (int id = 265; id < 272; ++id) Add("[PAD" + std::to_string(id) + "]", TokenType::kUnused);
    Set("pre", std::string("llama-bpe"));
    Set("bos_token_id", int64_t{bos});
    Set("eos_token_id", int64_t{eos});
    Set("eot_token_id", int64_t{turn_end});
    Set("padding_token_id", int64_t{263});
    Set("unknown_token_id", int64_t{263});
    more["tokenizer.chat_template"] = std::string("{{ bos_token }} \u00e9\n");
    more["general.sampling.temp"] = static_cast<double>(0.6f);
    more["general.sampling.top_p"] = static_cast<double>(0.95f);
    more["general.sampling.top_k"] = int64_t{20};
    more["general.architecture"] = std::string("llama");
    more["llama.context_length"] = int64_t{4096};
  }
};

TEST(Convert, ByteLevel_EveryKey_ComesBack) {
  const Metadata meta = Everything().Meta();
  const TextFiles files = Export(meta);
  const Metadata back = Import(files, RowsOf(meta));
  ExpectSameKeys(back, meta);
  const auto expected = FromMeta(meta);
  ExpectSameIds(*FromMeta(back), *expected);
  const auto read = FromFiles(files);
  ExpectSameIds(*read, *expected);
  EXPECT_EQ(read->end_of_generation(), expected->end_of_generation());
  EXPECT_EQ(read->chat_template(), expected->chat_template());
  EXPECT_EQ(read->bos(), expected->bos());
  EXPECT_EQ(read->pad(), expected->pad());
  EXPECT_TRUE(read->add_bos());
}

TEST(Convert, ByteLevel_Files_SayWhatTransformersReads) {
  const TextFiles files = Export(Everything().Meta());
  const json tokenizer = json::parse(files.at("tokenizer.json"));
  EXPECT_EQ(tokenizer["model"]["merges"][1], (json{"ab", "ab"}));
  EXPECT_EQ(tokenizer["model"]["vocab"].size(), 264u);  // all but the padding
  EXPECT_EQ(tokenizer["added_tokens"].size(), 5u);
  EXPECT_EQ(tokenizer["added_tokens"][0]["special"], true);
  EXPECT_EQ(tokenizer["added_tokens"][4]["content"], "<think>");
  EXPECT_EQ(tokenizer["added_tokens"][4]["special"], false);
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], "<begin>");
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")),
            (json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"clean_up_tokenization_spaces", false},
                  {"bos_token", "<begin>"},
                  {"eos_token", "<|im_end|>"},
                  {"pad_token", "<|endoftext|>"},
                  {"unk_token", "<|endoftext|>"},
                  {"model_max_length", 4096},
                  {"chat_template", "{{ bos_token }} \u00e9\n"}}));
  EXPECT_EQ(json::parse(files.at("generation_config.json")),
            (json{{"bos_token_id", 261},
                  {"pad_token_id", 263},
                  {"eos_token_id", {262, 258, 263}},
                  {"do_sample", true},
                  {"temperature", 0.6},
                  {"top_p", 0.95},
                  {"top_k", 20}}));
}

TEST(Convert, ByteLevel_AddedTokensBehindTheModels_AreNotInItsVocabulary) {
  Tiny tiny;
  tiny.Add("<a>", TokenType::kControl);
  tiny.Add("<b>", TokenType::kUserDefined);
  tiny.Add("[PAD258]", TokenType::kUnused);
  const TextFiles files = Export(tiny.Meta());
  const json tokenizer = json::parse(files.at("tokenizer.json"));
  EXPECT_EQ(tokenizer["model"]["vocab"].size(), 256u);
  EXPECT_EQ(tokenizer["post_processor"], nullptr);
  ExpectSameKeys(Import(files, 259), tiny.Meta());
}

TEST(Convert, ByteLevel_GreedyModel_StaysGreedy) {
  Tiny tiny;
  tiny.more["general.sampling.temp"] = 0.0;
  ExpectSameKeys(ThereAndBack(tiny.Meta()), tiny.Meta());
}

TEST(Convert, ByteLevel_EosOfNormalType_IsInGenerationConfigAlone) {
  Tiny tiny;
  tiny.Set("eos_token_id", int64_t{'x'});
  const TextFiles files = Export(tiny.Meta());
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).count("eos_token"), 0u);
  ExpectSameKeys(Import(files, 256), tiny.Meta());
  ExpectSameIds(*FromFiles(files), *tiny.Make());
}

TEST(Convert, ByteLevel_MergeListedTwice_FirstRankCountsInBoth) {
  Tiny tiny;
  tiny.AddMerge("a", "b");
  tiny.AddMerge("b", "c");
  tiny.merges.push_back("a b");
  EXPECT_EQ(Encode(*FromFiles(Export(tiny.Meta())), "abc"), Encode(*tiny.Make(), "abc"));
  EXPECT_EQ(Encode(*FromMeta(ThereAndBack(tiny.Meta())), "abc"), Encode(*tiny.Make(), "abc"));
}

class ConvertRule : public testing::TestWithParam<const char*> {};

TEST_P(ConvertRule, ByteLevel_EveryRule_ComesBack) {
  Tiny tiny;
  tiny.AddMerge("1", "2");
  tiny.AddMerge("12", "3");
  tiny.AddMerge("a", "b");
  tiny.Set("pre", std::string(GetParam()));
  tiny.Set("bos_token_id", int64_t{tiny.Add("<s>", TokenType::kControl)});
  const Metadata meta = tiny.Meta();
  const TextFiles files = Export(meta);
  ExpectSameKeys(Import(files, RowsOf(meta)), meta);
  ExpectSameIds(*FromFiles(files), *tiny.Make());
}

INSTANTIATE_TEST_SUITE_P(Rules, ConvertRule,
                         testing::Values("smollm", "gpt-2", "qwen2", "qwen35", "llama-bpe"));

class ConvertFile : public testing::TestWithParam<const char*> {};

TEST_P(ConvertFile, ByteLevel_TinyModel_ComesBack) {
  const Metadata meta = OpenMetadata(DataPath(std::string("tiny/") + GetParam() + ".gguf"));
  const TextFiles files = Export(meta);
  ExpectSameKeys(Import(files, RowsOf(meta)), meta);
  ExpectSameIds(*FromFiles(files), *FromMeta(meta));
}

INSTANTIATE_TEST_SUITE_P(Files, ConvertFile,
                         testing::Values("llama3_bf16", "llama_f32", "qwen2_q8_0", "qwen3_q4_1",
                                         "qwen35_a_rot_ptq1_0", "qwen35_c_plain_pq2_0"));

// ---- What is read from files of others

TEST(Import, Ends_OfGenerationConfig_GoWhereGgufHasKeys) {
  TextFiles files = Export(Everything().Meta());
  files["generation_config.json"] = R"({"eos_token_id": [263, 258, 262], "bos_token_id": 4})";
  const Metadata meta = Import(files, 272);
  ExpectInt(meta, "eos_token_id", 262);  // tokenizer_config.json's
  ExpectInt(meta, "eot_token_id", 258);  // 263 is known by its text
  ExpectInt(meta, "bos_token_id", 261);
  files["tokenizer_config.json"] = R"({"add_bos_token": false})";
  json tokenizer = json::parse(files["tokenizer.json"]);
  tokenizer["post_processor"] = nullptr;
  files["tokenizer.json"] = tokenizer.dump();
  const Metadata bare = Import(files, 272);
  ExpectInt(bare, "eos_token_id", 263);  // the first of the list
  ExpectInt(bare, "bos_token_id", 4);
  EXPECT_FALSE(*bare.BoolOr("tokenizer.ggml.add_bos_token", true));
}

TEST(Import, MergesAsLinesAndTemplateOfItsOwn_AreRead) {
  const Metadata meta = Everything().Meta();
  TextFiles files = Export(meta);
  json tokenizer = json::parse(files["tokenizer.json"]);
  for (json& merge : tokenizer["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  files["tokenizer.json"] = tokenizer.dump();
  files["chat_template.jinja"] = "new";
  const Metadata back = Import(files, 272);
  EXPECT_TRUE(At(back, "tokenizer.ggml.merges") == At(meta, "tokenizer.ggml.merges"));
  EXPECT_TRUE(At(back, "tokenizer.chat_template") == MetaValue(std::string("new")));
}

// ---- SentencePiece's BPE

// The trained vocabulary, its user-defined tokens made control tokens or used without a space put
// in front.
Metadata Pieces(const std::string& name, bool add_space_prefix) {
  const Metadata file = OpenMetadata(DataPath("tokenizers/" + name + ".gguf"));
  Metadata meta;
  for (const auto& [key, value] : file.entries()) {
    if (!add_space_prefix || key != kTypes) meta.Insert(key, value);
  }
  meta.Insert("tokenizer.ggml.add_space_prefix", add_space_prefix);
  if (add_space_prefix) {
    std::vector<int64_t> types = **file.Ints(kTypes);
    std::replace(types.begin(), types.end(), static_cast<int64_t>(TokenType::kUserDefined),
                 static_cast<int64_t>(TokenType::kControl));
    meta.Insert(kTypes, types);
  }
  return meta;
}

class ConvertPieces : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  const Metadata meta_ = Pieces(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(ConvertPieces, ThereAndBack_GivesTheSameIds) {
  const Metadata back = ThereAndBack(meta_);
  EXPECT_TRUE(At(back, kTokens) == At(meta_, kTokens));
  EXPECT_TRUE(At(back, kTypes) == At(meta_, kTypes));
  const auto expected = FromMeta(meta_);
  const auto got = FromMeta(back);
  ExpectSameIds(*got, *expected);
  EXPECT_EQ(got->bos(), expected->bos());
  EXPECT_EQ(got->end_of_generation(), expected->end_of_generation());
  EXPECT_TRUE(got->add_bos());
  EXPECT_EQ(got->adds_space(), std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Files, ConvertPieces,
                         testing::Combine(testing::Values("spm_bytes", "spm_unknown"),
                                          testing::Bool()));

void SetMetaspace(json* tokenizer, const char* scheme, bool split) {
  (*tokenizer)["normalizer"] = nullptr;
  (*tokenizer)["pre_tokenizer"] = {{"type", "Metaspace"},
                                   {"replacement", "\u2581"},
                                   {"prepend_scheme", scheme},
                                   {"split", split}};
}

TEST(Import, Metaspace_PutsTheSpaceAsPrependDoes) {
  TextFiles files = Export(Pieces("spm_bytes", /*add_space_prefix=*/true));
  const auto rows =
      static_cast<int64_t>(json::parse(files["tokenizer.json"])["model"]["vocab"].size());
  const Metadata expected = Import(files, rows);
  json tokenizer = json::parse(files["tokenizer.json"]);
  SetMetaspace(&tokenizer, "always", /*split=*/false);
  files["tokenizer.json"] = tokenizer.dump();
  const Metadata always = Import(files, rows);
  ExpectSameKeys(always, expected);
  EXPECT_TRUE(FromMeta(always)->adds_space());
  tokenizer["pre_tokenizer"]["prepend_scheme"] = "never";
  files["tokenizer.json"] = tokenizer.dump();
  EXPECT_FALSE(FromMeta(Import(files, rows))->adds_space());
}

// ---- Refusals

void ExpectRefused(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

struct ExportRefusal {
  const char* name;
  void (*damage)(Tiny* tiny);
  const char* message;
};

class ExportRefused : public testing::TestWithParam<ExportRefusal> {};

TEST_P(ExportRefused, ToHuggingFace_NamesTokenAndRemedy) {
  Tiny tiny;
  GetParam().damage(&tiny);
  ExpectRefused(ToHuggingFace(tiny.Meta()).status(), GetParam().message);
}

const ExportRefusal kExportRefusals[] = {
    {"NoTokenizer", [](Tiny* t) { t->Set("model", std::string("t5")); }, "model is 't5'"},
    {"TextTwice", [](Tiny* t) { t->Add("a", TokenType::kControl); },
     "tokens[97] and tokenizer.ggml.tokens[256] are both 'a'; tokenizer.json can hold one"},
    {"MergeOfNoToken", [](Tiny* t) { t->merges = {"a b"}; },
     "merge 0 is 'a b', but 'ab' is no token of the model"},
    {"ByteToken", [](Tiny* t) { t->Add("<0x0A>", TokenType::kByte); },
     "tokens[256] is of type byte"},
    {"NormalBos",
     [](Tiny* t) {
       t->Set("bos_token_id", int64_t{7});
       t->Set("add_bos_token", true);
     },
     "tokens[7] begins or ends texts but is of type normal"},
    {"TemplateNotUtf8", [](Tiny* t) { t->more["tokenizer.chat_template"] = std::string("\xFF"); },
     "tokenizer.chat_template is not valid UTF-8"},
};

INSTANTIATE_TEST_SUITE_P(Cases, ExportRefused, testing::ValuesIn(kExportRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

using Strings = std::vector<std::string>;
using Numbers = std::vector<int64_t>;
using Scores = std::vector<double>;

struct PiecesRefusal {
  const char* name;
  void (*damage)(Strings* tokens, Numbers* types, Scores* scores);
  const char* message;  // a part of it
};

class PiecesExportRefused : public testing::TestWithParam<PiecesRefusal> {};

TEST_P(PiecesExportRefused, ToHuggingFace_NamesTokenAndRemedy) {
  Strings tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "ba"};
  Numbers types = {2, 3, 3, 1, 1, 1, 1};
  Scores scores = {0, 0, 0, -4, -5, -1, -2};
  GetParam().damage(&tokens, &types, &scores);
  Metadata meta;
  meta.Insert("tokenizer.ggml.model", std::string("llama"));
  meta.Insert(kTokens, tokens);
  meta.Insert(kTypes, types);
  meta.Insert("tokenizer.ggml.scores", scores);
  ExpectRefused(ToHuggingFace(meta).status(), GetParam().message);
}

const PiecesRefusal kPiecesRefusals[] = {
    {"UserDefined", [](Strings*, Numbers* types, Scores*) { (*types)[6] = 4; },
     "tokens[6] is user-defined, and add_space_prefix is true"},
    {"EqualScores", [](Strings*, Numbers*, Scores* scores) { (*scores)[6] = -1; },
     "tokens[5] and tokenizer.ggml.tokens[6] have the same score, -1.0"},
    {"NoCharacter", [](Strings* tokens, Numbers*, Scores*) { (*tokens)[6] = "b\u00e9"; },
     "tokens[6] is 'b\u00e9', but its character '\u00e9' is no normal token"},
    {"Space", [](Strings* tokens, Numbers*, Scores*) { (*tokens)[6] = "b "; },
     "tokens[6] is 'b ', with a space where U+2581 should be"},
};

INSTANTIATE_TEST_SUITE_P(Cases, PiecesExportRefused, testing::ValuesIn(kPiecesRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

struct ImportRefusal {
  const char* name;
  bool pieces;  // SentencePiece's BPE, else byte-level
  void (*damage)(json* tokenizer, json* config, json* generation);
  const char* message;  // a part of it
};

class ImportRefused : public testing::TestWithParam<ImportRefusal> {};

TEST_P(ImportRefused, FromHuggingFace_NamesFieldValueAndRemedy) {
  const Metadata source =
      GetParam().pieces ? Pieces("spm_bytes", /*add_space_prefix=*/true) : Everything().Meta();
  const TextFiles files = Export(source);
  json tokenizer = json::parse(files.at("tokenizer.json"));
  json config = json::parse(files.at("tokenizer_config.json"));
  json generation = json::parse(files.at("generation_config.json"));
  GetParam().damage(&tokenizer, &config, &generation);
  const TemporaryFolder folder({{"tokenizer.json", tokenizer.dump()},
                                {"tokenizer_config.json", config.dump()},
                                {"generation_config.json", generation.dump()}});
  Metadata meta;
  const Status status = FromHuggingFace(folder.path(), RowsOf(source), meta);
  ExpectRefused(status, GetParam().message);
  EXPECT_NE(status.message().find(folder.path() + "/tokenizer.json: "), std::string::npos);
}

json& Step(json* tokenizer, size_t index) {
  return (*tokenizer)["pre_tokenizer"]["pretokenizers"][index];
}

const ImportRefusal kImportRefusals[] = {
    {"UnknownPattern", false,
     [](json* t, json*, json*) { Step(t, 0)["pattern"]["Regex"] = "\\w+"; },
     "pre_tokenizer splits by \"\\\\w+\", which is none of the rules smollm, gpt-2"},
    {"MatchesAlone", false,
     [](json* t, json*, json*) {
       Step(t, 0)["behavior"] = "Removed";
       Step(t, 0)["invert"] = true;
     },
     "which is none of the rules"},
    {"IgnoreMerges", false, [](json* t, json*, json*) { (*t)["model"]["ignore_merges"] = false; },
     "model.ignore_merges is false; the rules llama-bpe need true"},
    {"PrefixSpace", false,
     [](json* t, json*, json*) {
       (*t)["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
     },
     "add_prefix_space must be false"},
    {"Strips", false, [](json* t, json*, json*) { (*t)["added_tokens"][2]["lstrip"] = true; },
     "added_tokens[2].lstrip is true; GGUF has no such flag"},
    {"MoreIdsThanRows", false, [](json* t, json*, json*) { (*t)["model"]["vocab"]["new"] = 272; },
     "model.vocab[\"new\"] is 272; the embedding has 272 rows"},
    {"IdTwice", false, [](json* t, json*, json*) { (*t)["model"]["vocab"]["new"] = 5; },
     "is 5; another token has that id"},
    {"TwoMoreEnds", false,
     [](json*, json*, json* g) {
       (*g)["eos_token_id"] = {262, 258, 261};
     },
     "generation_config.json.eos_token_id is an array; GGUF can name one end beside EOS and the "
     "usual ones, but 258 and 261 are two"},
    {"UnknownStandsForBytes", false,
     [](json* t, json*, json*) {
       (*t)["model"]["vocab"].erase("!");
       (*t)["model"]["unk_token"] = "<think>";
     },
     "model.unk_token is \"<think>\"; model.vocab lacks bytes"},
    {"NoSuchToken", false, [](json*, json* c, json*) { (*c)["unk_token"] = "<nope>"; },
     "tokenizer_config.json.unk_token is \"<nope>\"; tokenizer.json has no such token"},
    {"TopPIsText", false, [](json*, json*, json* g) { (*g)["top_p"] = "1"; },
     "generation_config.json.top_p is \"1\"; a number is needed"},
    {"SpaceOnce", true, [](json* t, json*, json*) { SetMetaspace(t, "first", false); },
     "pre_tokenizer.prepend_scheme is \"first\"; supported: always"},
    {"SplitWords", true, [](json* t, json*, json*) { SetMetaspace(t, "always", true); },
     "pre_tokenizer.split is true; it must be false"},
    {"NoReplace", true, [](json* t, json*, json*) { (*t)["normalizer"]["normalizers"].erase(1); },
     "normalizer is an object; it needs a Replace"},
    {"Lowercase", true,
     [](json* t, json*, json*) { (*t)["normalizer"]["normalizers"][0]["type"] = "Lowercase"; },
     "normalizer.normalizers[0].type is \"Lowercase\"; supported: Prepend, Replace"},
    {"MergesOutOfOrder", true,
     [](json* t, json*, json*) {
       json& merges = (*t)["model"]["merges"];
       merges.push_back(merges[0]);
     },
     "pairs of tokens in a row, as SentencePiece makes it"},
    {"MergeMissing", true, [](json* t, json*, json*) { (*t)["model"]["merges"].erase(0); },
     "which SentencePiece would merge to a token"},
    {"LongToken", true,
     [](json* t, json*, json*) {
       json& vocab = (*t)["model"]["vocab"];
       vocab[std::string(257, 'x')] = vocab["\u0e17"];
       vocab.erase("\u0e17");
     },
     "xxx\"...] is 257 bytes long; at most 256 are supported"},
    {"MergeOfControl", true,
     [](json* t, json*, json*) {
       (*t)["model"]["merges"][0] = {"<s>", "a"};
     },
     "model.merges[0] is an array; two normal tokens"},
    {"NormalizedControl", true,
     [](json* t, json*, json*) { (*t)["added_tokens"][1]["normalized"] = true; },
     "added_tokens[1].normalized is true; of a special token it must be false"},
    {"UserDefinedWithPrefix", true,
     [](json* t, json*, json*) { (*t)["added_tokens"][3]["special"] = false; },
     "added_tokens[3].special is false; it must be true where a space is put in front"},
    {"NoBos", true,
     [](json* t, json* c, json* g) {
       (*t)["post_processor"] = nullptr;
       c->erase("bos_token");
       g->erase("bos_token_id");
     },
     "names no BOS or EOS; model 'llama' needs both"},
};

INSTANTIATE_TEST_SUITE_P(Cases, ImportRefused, testing::ValuesIn(kImportRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Real files

TEST(ConvertReal, Smollm2_ComesBack) {
  TRINE_SKIP_WITHOUT_SMOL();
  const Metadata meta = OpenMetadata(SmolPath());
  const TextFiles files = Export(meta);
  const Metadata back = Import(files, RowsOf(meta));
  ExpectSameKeys(back, meta);
  const auto expected = FromMeta(meta);
  ExpectSameIds(*FromMeta(back), *expected);
  ExpectSameIds(*FromFiles(files), *expected);
}

class ConvertShared : public testing::TestWithParam<std::tuple<const char*, const char*, int64_t>> {
};

// GGUF has no key for NFC, so that is left out of the file, too.
TEST_P(ConvertShared, TokenizerJson_ComesBack) {
  const auto& [name, pre, rows] = GetParam();
  const std::filesystem::path folder = SharedTokenizer(name);
  TRINE_SKIP_WITHOUT_SHARED(folder);
  json tokenizer = ReadJson(folder / "tokenizer.json");
  tokenizer["normalizer"] = nullptr;
  const TextFiles source = {{"tokenizer.json", tokenizer.dump()},
                            {"tokenizer_config.json", ReadFile(folder / "tokenizer_config.json")}};
  const Metadata meta = Import(source, rows);
  EXPECT_TRUE(At(meta, "tokenizer.ggml.pre") == MetaValue(std::string(pre)));
  EXPECT_EQ(RowsOf(meta), rows);
  const auto expected = FromFiles(source);
  const auto made = FromMeta(meta);
  ExpectSameIds(*made, *expected);
  EXPECT_EQ(made->bos(), expected->bos());
  EXPECT_EQ(made->add_bos(), expected->add_bos());
  EXPECT_EQ(made->end_of_generation(), expected->end_of_generation());
  EXPECT_EQ(made->chat_template(), expected->chat_template());
  const TextFiles files = Export(meta);
  ExpectSameKeys(Import(files, rows), meta);
  ExpectSameIds(*FromFiles(files), *expected);
}

INSTANTIATE_TEST_SUITE_P(Files, ConvertShared,
                         testing::Values(std::tuple("qwen3", "qwen2", 151936),
                                         std::tuple("llama3.1", "llama-bpe", 128256)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)).substr(0, 5);
                         });

}  // namespace
}  // namespace trine
