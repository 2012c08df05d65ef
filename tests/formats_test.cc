// Weight formats: bytes of other implementations, published vectors, and what is encoded comes
// back.
#include <cmath>

#include "tests/kernels.h"

namespace trine {
namespace {

// ---- against the Python gguf package (tests/oracle/make_formats.py)

TEST(Formats, EveryBlock_DecodesAsGgufDoes) {
  auto backend = MakeBackend("generic");
  int checked = 0;
  for (const DType type : kAllTypes) {
    const std::string name = Info(type).name;
    if (!std::filesystem::exists(DataPath("formats/" + name + ".bin"))) continue;
    const auto bytes = ReadArray<std::byte>(DataPath("formats/" + name + ".bin"));
    const auto expected = ReadArray<float>(DataPath("formats/" + name + ".f32"));
    ASSERT_GT(expected.size(), 0u) << name;
    ++checked;
    Matrix<float> values(1, std::ssize(expected));
    backend->DecodeRows(type, bytes.data(), values.view());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(values.values[i], expected[i]) << name << " element " << i;
    }
  }
  EXPECT_EQ(checked, 10);
}

TEST(Half, EveryF16_RoundTrips) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float value = F16ToFloat(static_cast<uint16_t>(h));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToF16(value), h);
  }
  EXPECT_EQ(F16ToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(F16ToFloat(0x3555), 0x1.554p-2f);
}

TEST(Half, BetweenTwoF16_RoundsToNearestEven) {
  for (uint16_t h = 0; h < 0x7BFF; ++h) {
    const float low = F16ToFloat(h), high = F16ToFloat(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(FloatToF16(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, low)), h);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, high)), h + 1);
  }
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);  // halfway to what would be 65536
}

// ---- against vectors.json

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Vectors, EveryBlock_DecodesToItsValues) {
  auto backend = MakeBackend("generic");
  const nlohmann::json vectors = ReadJson(DataPath("vectors.json"));
  for (const auto& [name, block] : vectors["blocks"].items()) {
    const auto* info = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& entry) {
      return entry.ggml_id == block["ggml_type"].get<int>();
    });
    ASSERT_NE(info, std::end(kDTypes)) << name;
    const std::vector<std::byte> bytes = FromHex(block["bytes_hex"]);
    ASSERT_EQ(std::ssize(bytes), info->block_bytes) << name;
    Matrix<float> values(1, info->block_elems);
    backend->DecodeRows(info->type, bytes.data(), values.view());
    for (size_t i = 0; i < values.values.size(); ++i) {
      const double expected = block.contains("values")
                                  ? block["values"][i].get<double>()
                                  : block["codes"][i].get<double>() * block["scale"].get<double>();
      ASSERT_EQ(values.values[i], static_cast<float>(expected)) << name << " element " << i;
    }
  }
}

// A digit of a byte is that of byte * 3^n / 256, on all 256 bytes; the 243 that the packer writes
// give their number back.
TEST(Vectors, Base3_EveryByte) {
  std::vector<bool> canonical(256, false);
  for (int q = 0; q < 243; ++q) {
    formats::TwoBitUnit unit;
    for (int n = 0, rest = q; n < 5; ++n, rest /= 3) unit.Put(16 * (4 - n), rest % 3);
    formats::PTQ1_0::Block block;
    ASSERT_TRUE(formats::Encode(&unit, block));
    EXPECT_EQ(block.qs[0], (q * 256 + 242) / 243);
    canonical[block.qs[0]] = true;
  }
  std::vector<int> others;
  for (int byte = 0; byte < 256; ++byte) {
    if (!canonical[static_cast<size_t>(byte)]) others.push_back(byte);
    formats::PTQ1_0::Block block{};
    for (uint8_t& q : block.qs) q = static_cast<uint8_t>(byte);
    formats::TwoBitUnit unit;
    formats::PTQ1_0::Decode(block, 0, unit);
    for (int n = 0, power = 1; n < 5; ++n, power *= 3) {
      EXPECT_EQ(unit.code(16 * n), byte * power % 256 * 3 / 256) << byte;
    }
  }
  EXPECT_EQ(others, ReadJson(DataPath("vectors.json"))["base3"]["noncanonical"]);
}

// ---- round trips

TEST(TwoBitFormats, EncodeDecode_GivesCodesAndScalesBack) {
  for (const DType type : kAllTypes) {
    if (!IsTernary(type)) continue;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      const auto units = RandomUnits(type, 2, seed);
      const std::vector<std::byte> bytes = EncodeUnits(type, units);
      formats::VisitFormat<formats::TwoBitFormats>(type, [&](auto format) {
        using F = decltype(format);
        typename F::Block block;
        std::memcpy(&block, bytes.data(), sizeof block);
        for (int u = 0; u < Info(type).block_elems / F::kUnit; ++u) {
          formats::TwoBitUnit decoded;
          F::Decode(block, u, decoded);
          EXPECT_EQ(decoded.scale, units[0].scale);
          for (int c = 0; c < F::kUnit; ++c) {
            ASSERT_EQ(decoded.code(c), units[static_cast<size_t>(u)].code(c))
                << Info(type).name << " column " << c;
          }
        }
      });
    }
  }
}

TEST(TwoBitFormats, WhatABlockCannotHold_IsSaid) {
  formats::TwoBitUnit units[2];
  formats::PTQ1_0::Block ptq1;
  formats::PQ2_0::Block pq2;
  formats::TQ2_0::Block tq2;
  formats::Q1_0::Block q1;
  for (int c = 0; c < 128; ++c) units[0].Put(c, 2);
  EXPECT_TRUE(formats::Encode(units, ptq1));
  EXPECT_TRUE(formats::Encode(units, q1));
  EXPECT_TRUE(formats::Encode(units, tq2));
  units[1].scale = 1;
  EXPECT_FALSE(formats::Encode(units, tq2));  // two scales
  units[0].Put(77, 3);
  EXPECT_FALSE(formats::Encode(units, ptq1));  // +2
  EXPECT_TRUE(formats::Encode(units, pq2));
  units[0] = {};
  units[0].Put(5, 1);
  EXPECT_FALSE(formats::Encode(units, q1));  // a zero
}

}  // namespace
}  // namespace trine
