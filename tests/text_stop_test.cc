// Stop strings against a plain search of the whole text, cut in all ways.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "src/text/stop_strings.h"

namespace trine {
namespace {

using Strings = std::vector<std::string>;

struct Search {
  std::string text;  // that is certain
  bool found = false;
};

// The definition: at the leftmost place where a stop string stands, or could if the text went on.
Search Certain(const Strings& stops, const std::string& text, bool at_end) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::string rest = text.substr(begin);
    bool stands = false, could = false;
    for (const std::string& stop : stops) {
      stands |= rest.starts_with(stop);
      could |= stop.starts_with(rest);
    }
    if (stands || (could && !at_end)) return {text.substr(0, begin), stands};
  }
  return {text, false};
}

// Feeds the text, cut behind byte i where bit i of `cuts` is set, and looks at what is given out
// after every piece.
void Check(const Strings& stops, const std::string& text, uint64_t cuts) {
  StopStrings stream(stops);
  std::string given;
  size_t begin = 0;
  for (size_t i = 0; i < text.size() && !stream.found(); ++i) {
    if (i + 1 < text.size() && (cuts >> i & 1) == 0) continue;
    given += stream.Next(text.substr(begin, i + 1 - begin));
    begin = i + 1;
    const Search expected = Certain(stops, text.substr(0, i + 1), /*at_end=*/false);
    ASSERT_EQ(given, expected.text) << text << " cut " << cuts << " at " << i;
    ASSERT_EQ(stream.found(), expected.found) << text << " cut " << cuts << " at " << i;
  }
  given += stream.Finish();
  const Search expected = Certain(stops, text, /*at_end=*/true);
  ASSERT_EQ(given, expected.text) << text << " cut " << cuts;
  ASSERT_EQ(stream.found(), expected.found) << text << " cut " << cuts;
  if (stream.found()) {
    EXPECT_EQ(stream.Next("more"), "");
  }
}

std::string RandomText(std::mt19937& random, size_t length, int letters) {
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    text += static_cast<char>('a' + random() % static_cast<unsigned>(letters));
  }
  return text;
}

TEST(StopStrings, RandomTextsCutInAllWays_AsAPlainSearch) {
  std::mt19937 random(7);
  int found = 0, inner = 0;
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + round % 3;
    Strings stops;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      stops.push_back(RandomText(random, 1 + random() % 6, letters));
    }
    const std::string text = RandomText(random, 1 + random() % 10, letters);
    for (uint64_t cuts = 0; cuts < uint64_t{1} << (text.size() - 1); ++cuts) {
      Check(stops, text, cuts);
      if (testing::Test::HasFatalFailure()) return;
    }
    found += Certain(stops, text, /*at_end=*/true).found ? 1 : 0;
    inner += Certain(stops, text, true).found && !Certain(stops, text, false).found ? 1 : 0;
  }
  EXPECT_GT(found, 50);
  EXPECT_LT(found, 250);
  EXPECT_GT(inner, 0);
}

TEST(StopStrings, OuterOneCounts_IfItComes) {
  const Strings stops = {"abcd", "bc"};
  StopStrings outer(stops), inner(stops), end(stops);
  EXPECT_EQ(outer.Next("xabc"), "x");
  EXPECT_FALSE(outer.found());
  EXPECT_EQ(outer.Next("de"), "");
  EXPECT_TRUE(outer.found());
  EXPECT_EQ(inner.Next("xabce"), "xa");
  EXPECT_TRUE(inner.found());
  EXPECT_EQ(end.Next("xabc"), "x");
  EXPECT_EQ(end.Finish(), "a");
  EXPECT_TRUE(end.found());
}

TEST(StopStrings, None_PassesAll) {
  StopStrings none({});
  EXPECT_EQ(none.Next("abc"), "abc");
  EXPECT_EQ(none.Next(""), "");
  EXPECT_EQ(none.Finish(), "");
  EXPECT_FALSE(none.found());
}

// A text that all of a long stop string but its end repeats in. Compared anew or moved at every
// byte it would take minutes.
TEST(StopStrings, LongOnesByteByByte_TakeLinearTime) {
  constexpr size_t kLength = 1 << 18, kText = 1 << 20;
  StopStrings stream({std::string(kLength, 'a') + 'b', std::string(1000, 'a') + 'c'});
  const auto start = std::chrono::steady_clock::now();
  std::string given;
  for (size_t i = 0; i < kText; ++i) given += stream.Next("a");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(given.size(), kText - kLength);
  EXPECT_EQ(stream.Next("b"), "");
  EXPECT_TRUE(stream.found());
  EXPECT_LT(seconds.count(), 2);
}

}  // namespace
}  // namespace trine
