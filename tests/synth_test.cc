// Made-up models and the writing of files: the layouts of the presets against published totals, the
// encoders against the decoders, the weights' statistics, the GGUF writer against the reader.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kernels/formats.h"
#include "kernels/formats/encode.h"
#include "kernels/formats/ternary_encode.h"
#include "src/synth/model_layout.h"
#include "src/synth/random_rows.h"
#include "src/synth/random_stream.h"
#include "src/synth/vocabulary.h"
#include "src/text/tokenizer.h"
#include "src/weights/gguf_writer.h"
#include "tests/fixtures.h"

namespace trine {
namespace {

using formats::TwoBitUnit;

const Preset& PresetNamed(const std::string& name) {
  const Result<const Preset*> preset = FindPreset(name);
  EXPECT_TRUE(preset.ok()) << name;
  return **preset;
}

std::vector<SynthTensor> WholeModel(const std::string& name, DType type) {
  const Preset& preset = PresetNamed(name);
  return LayOutModel(preset, type, preset.layers);
}

struct Totals {
  int64_t tensors = 0, parameters = 0, bytes = 0;
};

Totals Sum(const std::vector<SynthTensor>& tensors) {
  Totals totals;
  for (const SynthTensor& tensor : tensors) {
    ++totals.tensors;
    totals.parameters += tensor.info.elements();
    totals.bytes += tensor.info.bytes;
  }
  return totals;
}

// ---- layouts: the published totals, spec/bonsai.md 4.3, 5.1, 8

TEST(LayOutModel, Bonsai2_IsAsPublished) {
  const Totals ptq1 = Sum(WholeModel("ternary-bonsai-2-27b", DType::kPTQ1_0));
  EXPECT_EQ(ptq1.tensors, 851);
  EXPECT_EQ(ptq1.parameters, 26895998464);
  EXPECT_EQ(ptq1.bytes, 5935527936);
  EXPECT_EQ(Sum(WholeModel("ternary-bonsai-2-27b", DType::kPQ2_0)).bytes, 7195047936);
  EXPECT_EQ(Sum(WholeModel("ternary-bonsai-2-27b", DType::kQ2_0)).bytes, 7614887936);
  EXPECT_EQ(Sum(WholeModel("qwen3.8-27b-f16", DType::kF16)).bytes, 53797287936);
}

TEST(LayOutModel, FirstGeneration_HasTernaryGates) {
  const std::vector<SynthTensor> tensors = WholeModel("ternary-bonsai-27b", DType::kPQ2_0);
  EXPECT_EQ(Sum(tensors).parameters, 26895998464);
  for (const SynthTensor& tensor : tensors) {
    EXPECT_NE(tensor.info.type, DType::kBF16) << tensor.info.name;
    EXPECT_FALSE(tensor.rotated) << tensor.info.name;
  }
}

TEST(LayOutModel, DenseBonsais_AreAsPublished) {
  EXPECT_EQ(Sum(WholeModel("ternary-bonsai-1.7b", DType::kPQ2_0)).parameters, 1720574976);
  EXPECT_EQ(Sum(WholeModel("ternary-bonsai-4b", DType::kPQ2_0)).parameters, 4022468096);
  EXPECT_EQ(Sum(WholeModel("ternary-bonsai-8b", DType::kPQ2_0)).parameters, 8190735360);
  const int64_t bytes = Sum(WholeModel("ternary-bonsai-1.7b", DType::kPQ2_0)).bytes;
  EXPECT_NEAR(static_cast<double>(bytes), 457.5e6, 0.05e6);
}

TEST(LayOutModel, Bonsai2_Rotates401Matrices) {
  const std::vector<SynthTensor> tensors = WholeModel("ternary-bonsai-2-27b", DType::kPQ2_0);
  const Metadata meta = DescribeModel(PresetNamed("ternary-bonsai-2-27b"), 64, tensors, 1);
  const auto names = meta.Strings("prism.hadamard.weight_names");
  ASSERT_TRUE(names.ok() && *names != nullptr);
  EXPECT_EQ((*names)->size(), 401u);
  const auto signs = meta.Ints("prism.hadamard.sign_values");
  ASSERT_TRUE(signs.ok() && *signs != nullptr);
  EXPECT_EQ((*signs)->size(), 28672u);
  int64_t sum = 0;
  for (const int64_t sign : **signs) {
    ASSERT_EQ(std::abs(sign), 1);
    sum += sign;
  }
  EXPECT_LT(std::abs(sum), 1000);  // 6 deviations of sqrt(28672)
}

TEST(LayOutModel, FewLayers_KeepThePattern) {
  std::vector<std::string> attention;
  for (const SynthTensor& tensor :
       LayOutModel(PresetNamed("qwen3.8-27b-f16"), DType::kF16, /*layers=*/9)) {
    if (tensor.info.name.ends_with("attn_q.weight")) attention.push_back(tensor.info.name);
  }
  EXPECT_EQ(attention, (std::vector<std::string>{"blk.3.attn_q.weight", "blk.7.attn_q.weight"}));
}

// ---- encoders

// Random codes of which `allowed` has the bit set.
TwoBitUnit RandomUnit(uint32_t allowed, int64_t row) {
  RandomStream random(/*seed=*/7, /*tensor=*/0, row);
  TwoBitUnit unit;
  unit.scale = FloatToF16(0.01f);
  for (int c = 0; c < 128;) {
    const auto code = static_cast<int>(random.Next() >> 62);
    if ((allowed >> code & 1) != 0) unit.Put(c++, code);
  }
  return unit;
}

// Encodes 256 columns and decodes them again; whether all was held.
template <typename Format>
bool RoundTrip(const TwoBitUnit (&in)[2], TwoBitUnit (&out)[2]) {
  constexpr int kBlocks = 256 / Info(Format::kType).block_elems;
  typename Format::Block blocks[kBlocks];
  bool held = true;
  for (int b = 0; b < kBlocks; ++b) {
    held &= formats::Encode(in + b, blocks[b]);
  }
  for (int u = 0; u < 2; ++u) Format::Decode(blocks[u * kBlocks / 2], kBlocks == 2 ? 0 : u, out[u]);
  return held;
}

template <typename Format>
void ExpectRoundTrips(uint32_t allowed) {
  for (int64_t row = 0; row < 200; ++row) {
    const TwoBitUnit in[2] = {RandomUnit(allowed, 2 * row), RandomUnit(allowed, 2 * row + 1)};
    TwoBitUnit out[2];
    ASSERT_TRUE(RoundTrip<Format>(in, out)) << Info(Format::kType).name;
    ASSERT_EQ(std::memcmp(in, out, sizeof in), 0) << Info(Format::kType).name << " row " << row;
  }
}

TEST(TernaryEncode, EveryFormat_GivesTheCodesBack) {
  constexpr uint32_t kTrits = 0b0111, kSigns = 0b0101, kAll = 0b1111;
  ExpectRoundTrips<formats::PTQ1_0>(kTrits);
  ExpectRoundTrips<formats::TQ1_0>(kTrits);
  ExpectRoundTrips<formats::TQ2_0>(kAll);
  ExpectRoundTrips<formats::PQ2_0>(kAll);
  ExpectRoundTrips<formats::Q1_0>(kSigns);
}

TEST(TernaryEncode, WhatABlockCannotHold_IsRefused) {
  const TwoBitUnit trits[2] = {RandomUnit(0b0111, 0), RandomUnit(0b0111, 1)};
  for (int column = 0; column < 128; ++column) {
    TwoBitUnit in[2] = {trits[0], trits[1]}, out[2];
    in[1].Put(column, 3);
    EXPECT_FALSE(RoundTrip<formats::PTQ1_0>(in, out)) << column;
    EXPECT_FALSE(RoundTrip<formats::TQ1_0>(in, out)) << column;
  }
  TwoBitUnit out[2];
  EXPECT_FALSE(RoundTrip<formats::Q1_0>(trits, out));
  TwoBitUnit scales[2] = {trits[0], trits[1]};
  scales[1].scale = FloatToF16(0.02f);
  EXPECT_FALSE(RoundTrip<formats::TQ1_0>(scales, out));
  EXPECT_FALSE(RoundTrip<formats::TQ2_0>(scales, out));
}

// Half a step of the block, and the rounding of its f16 scale and minimum.
template <typename Format>
void ExpectNear(double steps) {
  for (int64_t row = 0; row < 200; ++row) {
    float values[32];
    RandomStream random(1, 2, row);
    for (int i = 0; i < 32; i += 4) random.Gaussians(0.02f, values + i);
    typename Format::Block block;
    formats::CodedUnit unit;
    formats::Encode(values, block);
    Format::Decode(block, 0, unit);
    for (int i = 0; i < 32; ++i) {
      const double value = static_cast<double>(unit.scale) * unit.codes[i] + unit.min;
      EXPECT_NEAR(value, values[i], steps * std::abs(unit.scale) + 0.07 * 0x1p-10);
    }
  }
}

TEST(BlockEncode, Values_AreWithinAStep) {
  ExpectNear<formats::Q8_0>(0.5);
  ExpectNear<formats::Q4_0>(1.0);  // the end opposite to the extreme has code 7, not 8
  ExpectNear<formats::Q4_1>(0.5);
}

TEST(BlockEncode, Zeros_StayZeros) {
  const float zeros[32] = {};
  formats::CodedUnit unit;
  formats::Q4_0::Block q4;
  formats::Encode(zeros, q4);
  formats::Q4_0::Decode(q4, 0, unit);
  EXPECT_EQ(unit.scale * static_cast<float>(unit.codes[5]), 0.0f);
  formats::Q8_0::Block q8;
  formats::Encode(zeros, q8);
  formats::Q8_0::Decode(q8, 0, unit);
  EXPECT_EQ(unit.scale * static_cast<float>(unit.codes[5]), 0.0f);
}

TEST(PlainEncode, Bf16_TiesToEven) {
  EXPECT_EQ(formats::ToElement(formats::BF16{}, BitsToFloat(0x3F808000u)), 0x3F80);
  EXPECT_EQ(formats::ToElement(formats::BF16{}, BitsToFloat(0x3F818000u)), 0x3F82);
}

// ---- weights

SynthTensor Matrix(DType type, int64_t cols, int64_t rows) {
  SynthTensor tensor;
  tensor.info.type = type;
  tensor.info.shape = {cols, rows};
  tensor.info.bytes = rows * RowBytes(type, cols);
  tensor.deviation = 0.02f;
  return tensor;
}

std::vector<std::byte> Row(const SynthTensor& tensor, uint64_t seed, int64_t index, int64_t row) {
  std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(tensor.info.type, tensor.info.cols())));
  RandomRows(seed).Fill(tensor, index, row, bytes.data());
  return bytes;
}

template <typename Format>
std::vector<float> DecodeTernary(const std::vector<std::byte>& bytes) {
  std::vector<float> values;
  typename Format::Block block;
  for (size_t at = 0; at < bytes.size(); at += sizeof block) {
    std::memcpy(&block, bytes.data() + at, sizeof block);
    for (int u = 0; u < Info(Format::kType).block_elems / Format::kUnit; ++u) {
      TwoBitUnit unit;
      Format::Decode(block, u, unit);
      for (int c = 0; c < Format::kUnit; ++c) {
        values.push_back(F16ToFloat(unit.scale) * static_cast<float>(unit.code(c) - 1));
      }
    }
  }
  return values;
}

std::vector<float> DecodeRow(const SynthTensor& tensor, const std::vector<std::byte>& bytes) {
  std::vector<float> values(static_cast<size_t>(tensor.info.cols()));
  if (formats::DecodePlain(tensor.info.type, bytes.data(), tensor.info.cols(), values.data())) {
    return values;
  }
  formats::VisitFormat<formats::TwoBitFormats>(
      tensor.info.type, [&](auto format) { values = DecodeTernary<decltype(format)>(bytes); });
  return values;
}

std::vector<float> RowValues(DType type, uint64_t seed, int64_t row) {
  const SynthTensor tensor = Matrix(type, 5120, 8);
  return DecodeRow(tensor, Row(tensor, seed, /*index=*/3, row));
}

TEST(RandomRows, PackingsOfTheSameModel_HoldTheSameWeights) {
  const std::vector<float> values = RowValues(DType::kPQ2_0, 1, 2);
  EXPECT_EQ(RowValues(DType::kPTQ1_0, 1, 2), values);
  EXPECT_EQ(RowValues(DType::kQ2_0, 1, 2), values);
  const std::vector<float> wide = RowValues(DType::kTQ1_0, 1, 2);
  EXPECT_EQ(RowValues(DType::kTQ2_0, 1, 2), wide);
  for (size_t c = 0; c < values.size(); ++c)
    EXPECT_EQ(std::signbit(values[c]), std::signbit(wide[c]));
}

TEST(RandomRows, SeedTensorAndRow_AllCount) {
  const SynthTensor tensor = Matrix(DType::kPQ2_0, 5120, 8);
  std::set<std::string> rows;
  for (const uint64_t seed : {0, 1}) {
    for (const int64_t index : {0, 1}) {
      for (const int64_t row : {0, 1}) {
        const std::vector<std::byte> bytes = Row(tensor, seed, index, row);
        rows.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
  }
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(Row(tensor, 1, 1, 1), Row(tensor, 1, 1, 1));
}

// Means and deviations of 8 rows of 5120 values: within 6 standard errors (deviation / 202) and the
// spread of the scales (1 %).
TEST(RandomRows, EveryType_HasTheDeviation) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ1_0, DType::kQ2_0,
                           DType::kPQ2_0, DType::kPTQ1_0, DType::kTQ1_0, DType::kTQ2_0}) {
    double sum = 0, squares = 0, zeros = 0;
    for (int64_t row = 0; row < 8; ++row) {
      for (const float value : RowValues(type, 5, row)) {
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
        zeros += value == 0 ? 1 : 0;
      }
    }
    constexpr double kCount = 8 * 5120;
    EXPECT_NEAR(sum / kCount, 0, 6 * 0.02 / 202) << Info(type).name;
    EXPECT_NEAR(std::sqrt(squares / kCount), 0.02, 0.001) << Info(type).name;
    const bool trits = IsTernary(type) && type != DType::kQ1_0;
    EXPECT_NEAR(zeros / kCount, trits ? 1.0 / 3 : 0, 0.015) << Info(type).name;
  }
}

TEST(RandomRows, VectorsOfGatedDeltaNet_AreInTheirRanges) {
  SynthTensor tensor = Matrix(DType::kF32, 48, 1);
  tensor.fill = Fill::kDecay;
  for (const float value : DecodeRow(tensor, Row(tensor, 1, 0, 0))) {
    EXPECT_LE(value, -1.0f);
    EXPECT_GE(value, -16.0f);
  }
  tensor.fill = Fill::kTimeStep;
  for (const float value : DecodeRow(tensor, Row(tensor, 1, 0, 0))) {
    const double step = std::log1p(std::exp(static_cast<double>(value)));
    EXPECT_GE(step, 0.00099);
    EXPECT_LE(step, 0.101);
  }
}

// The same bytes on every machine.
TEST(RandomStream, FirstNumbers_AreTheseForEver) {
  RandomStream random(/*seed=*/1, /*tensor=*/2, /*row=*/3);
  EXPECT_EQ(random.Next(), 0x5AFB4682BD747A5Cu);
  EXPECT_EQ(random.Next(), 0xEDC20A6F0AFDCF6Bu);
}

// ---- tokenizer

TEST(Vocabulary, BothFamilies_TakeEveryTextApartAndBack) {
  for (const VocabularyShape& shape : {kQwen35Vocabulary, kQwen3Vocabulary}) {
    Metadata meta;
    DescribeVocabulary(shape, meta);
    const auto tokens = meta.Strings("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens.ok() && *tokens != nullptr);
    const std::vector<std::string>& texts = **tokens;
    EXPECT_EQ(std::ssize(texts), shape.size);
    EXPECT_EQ(std::ssize(std::set(texts.begin(), texts.end())), shape.size);
    const auto tokenizer = Tokenizer::FromMetadata(meta);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const std::string text = "the quick brown fox\n\tnaïve 😀 \x01 12345 <|im_end|>";
    const auto ids = (*tokenizer)->Encode(text, Tokenizer::Special::kParse);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->back(), shape.eos);
    std::string back;
    for (const int32_t id : *ids) back += (*tokenizer)->Piece(id);
    EXPECT_EQ(back, text);
    EXPECT_LT(ids->size(), text.size() * 3 / 4);
  }
}

// ---- the GGUF writer

class GgufWriterTest : public testing::Test {
 protected:
  ~GgufWriterTest() override { std::filesystem::remove_all(folder_); }

  TensorInfo Tensor(std::string name, DType type, std::vector<int64_t> shape) {
    TensorInfo info;
    info.name = std::move(name);
    info.type = type;
    info.shape = std::move(shape);
    return info;
  }

  // Every tensor's bytes are its number.
  Status Write(const Metadata& metadata, const std::vector<TensorInfo>& tensors) {
    std::vector<TensorInfo> laid = tensors;
    TRINE_RETURN_IF_ERROR(LayOutGguf(metadata, laid));
    return WriteGguf(path_, metadata, tensors, [&](size_t index, const ByteSink& sink) {
      const std::vector<std::byte> bytes(static_cast<size_t>(laid[index].bytes),
                                         static_cast<std::byte>(index + 1));
      const std::span<const std::byte> all(bytes);
      TRINE_RETURN_IF_ERROR(sink(all.first(1)));
      return sink(all.subspan(1));
    });
  }

  const std::string folder_ = [] {
    std::string name = testing::TempDir() + "/trine_synth_test_" + std::to_string(getpid());
    std::filesystem::create_directories(name);
    return name;
  }();
  const std::string path_ = folder_ + "/model.gguf";
};

TEST_F(GgufWriterTest, MetadataAndTensors_AreReadBack) {
  Metadata meta;
  meta.Insert("a.bool", true);
  meta.Insert("a.int", int64_t{7});
  meta.Insert("a.negative", int64_t{-7});
  meta.Insert("a.large", int64_t{1} << 40);
  meta.Insert("a.float", 0.25);
  meta.Insert("a.text", std::string("näme"));
  meta.Insert("a.bools", std::vector<bool>{true, false});
  meta.Insert("a.ints", std::vector<int64_t>{1, -1});
  meta.Insert("a.larges", std::vector<int64_t>{1, int64_t{1} << 40});
  meta.Insert("a.floats", std::vector<double>{0.5, -2});
  meta.Insert("a.texts", std::vector<std::string>{"", "b"});
  ASSERT_TRUE(Write(meta, {Tensor("x", DType::kF32, {3}), Tensor("y", DType::kPTQ1_0, {256, 2, 3}),
                           Tensor("z", DType::kF16, {5, 1})})
                  .ok());
  const auto store = OpenWeights(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->metadata().entries(), meta.entries());
  ASSERT_EQ((*store)->tensors().size(), 3u);
  const TensorInfo& y = *(*store)->Find("y");
  EXPECT_EQ(y.shape, (std::vector<int64_t>{256, 2, 3}));
  EXPECT_EQ(y.bytes, 6 * 56);
  std::vector<std::byte> bytes(static_cast<size_t>(y.bytes));
  ASSERT_TRUE((*store)->Read(y, 0, y.bytes, bytes.data()).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{2}), y.bytes);
  EXPECT_EQ(std::filesystem::file_size(path_) % 32, 0u);
}

TEST_F(GgufWriterTest, TensorsThatGgufCannotHold_AreNamed) {
  const auto message = [&](const TensorInfo& tensor) {
    return Write({}, {Tensor("x", DType::kF32, {1}), tensor}).message();
  };
  EXPECT_NE(message(Tensor("x", DType::kF32, {3})).find("'x' occurs twice"), std::string::npos);
  EXPECT_NE(message(Tensor("", DType::kF32, {3})).find("name of 0 bytes"), std::string::npos);
  EXPECT_NE(message(Tensor(std::string(64, 'n'), DType::kF32, {3})).find("64 bytes"),
            std::string::npos);
  EXPECT_NE(message(Tensor("y", DType::kF32, {1, 1, 1, 1, 1})).find("5 dimensions"),
            std::string::npos);
  EXPECT_NE(message(Tensor("y", DType::kF32, {3, 0})).find("[3, 0]"), std::string::npos);
  EXPECT_NE(message(Tensor("y", DType::kPQ2_0, {64, 2})).find("whole blocks of 128"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(GgufWriterTest, AProducersError_LeavesNothing) {
  const Status status = WriteGguf(path_, {}, {Tensor("x", DType::kF32, {3})},
                                  [](size_t, const ByteSink&) { return BadInput("no"); });
  EXPECT_EQ(status.message(), "no");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(GgufWriterTest, TooLittleSpace_NamesBothNumbers) {
  const std::string message = Write({}, {Tensor("x", DType::kF32, {1})}).message();
  EXPECT_EQ(message, "");
  const Status status = WriteGguf(path_, {}, {Tensor("x", DType::kF32, {int64_t{1} << 50})},
                                  [](size_t, const ByteSink&) { return BadInput("not called"); });
  EXPECT_NE(status.message().find("needs 4503599627370"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("are free on that disk"), std::string::npos);
}

}  // namespace
}  // namespace trine
