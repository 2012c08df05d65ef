#include "launcher/cli_values.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <sstream>
#include <utility>

namespace trine {
namespace {

constexpr int64_t kLongest = 1 << 24;

// Adds what one item of a list stands for: a number or a range.
Status AddLengths(const std::string& option, const std::string& item, int64_t least,
                  std::vector<int64_t>& values) {
  static const std::regex form(R"((\d{1,15})(?:-(\d{1,15})(?:([+*])(\d{1,15}))?)?)");
  std::smatch parts;
  if (!std::regex_match(item, parts, form)) {
    return UsageError(option + ": '" + item +
                      "' is neither a number >= 0 nor a range such as 1-4, 1-9+4 or 1-8*2");
  }
  const int64_t first = std::stoll(parts[1]);
  const int64_t last = parts[2].matched ? std::stoll(parts[2]) : first;
  const int64_t step = parts[4].matched ? std::stoll(parts[4]) : 1;
  for (const int64_t length : {first, last}) {
    TRINE_RETURN_IF_ERROR(InRange(option, static_cast<double>(length), static_cast<double>(least),
                                  static_cast<double>(kLongest)));
  }
  const bool multiply = parts[3] == "*";
  if (last < first || step > kLongest || step < (multiply ? 2 : 1) || (multiply && first == 0)) {
    return UsageError(option + ": the range '" + item + "' does not get to its last number");
  }
  constexpr size_t kMost = 1000;
  for (int64_t value = first; value <= last; value = multiply ? value * step : value + step) {
    if (values.size() == kMost) {
      return UsageError(option + ": with '" + item + "' there are more than " +
                        std::to_string(kMost) + " numbers");
    }
    values.push_back(value);
  }
  return {};
}

}  // namespace

Status UsageError(std::string message) {
  return {Code::kUsage, std::move(message)};
}

Status OneOf(const std::string& option, const std::string& value,
             std::initializer_list<const char*> possible) {
  std::string list;
  for (const char* choice : possible) {
    if (value == choice) return {};
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  return UsageError(option + " is '" + value + "'; possible are " + list);
}

Status InRange(const std::string& option, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  std::ostringstream text;
  text.precision(10);
  text << option << " is " << value << "; " << least << " to " << most << " is possible";
  return UsageError(text.str());
}

Result<std::vector<double>> ParseList(const std::string& option, const std::string& text) {
  std::vector<double> values;
  if (text.ends_with(',')) {
    return UsageError(option + " " + text + ": a number is missing at the end");
  }
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    std::istringstream one(item);
    double value = 0;
    if (!(one >> value) || !one.eof() || value < 0) {
      return UsageError(option + " " + text + ": '" + item + "' is not a number >= 0");
    }
    values.push_back(value);
  }
  return values;
}

Result<std::vector<int64_t>> ParseLengths(const std::string& option, const std::string& text,
                                          int64_t least) {
  std::vector<int64_t> values;
  std::istringstream stream(text + ",");  // getline does not see an item behind the last comma
  for (std::string item; std::getline(stream, item, ',');) {
    TRINE_RETURN_IF_ERROR(AddLengths(option, item, least, values));
  }
  return values;
}

Result<int64_t> ParseBytes(const std::string& option, const std::string& text) {
  std::istringstream stream(text);
  double number = 0;
  std::string unit;
  stream >> number >> unit >> std::ws;
  const double factor = unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : unit == "KB" ? 1e3 : 0;
  const double bytes = number * factor;
  if (!(bytes >= 1e3) || bytes > 1e15 || !stream.eof()) {
    return UsageError(option + " is '" + text +
                      "'; a size from 1KB on is needed, such as 500MB or 5GB");
  }
  return static_cast<int64_t>(bytes);
}

Result<std::pair<int32_t, double>> ParseLogitBias(const std::string& option,
                                                  const std::string& text) {
  static const std::regex form(R"((\d{1,9})([+-])(\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf))",
                               std::regex::icase);
  std::smatch parts;
  const bool matches = std::regex_match(text, parts, form);
  const double size = matches ? std::strtod(parts[3].str().c_str(), nullptr) : 0;
  const double bias = matches && parts[2] == "-" ? -size : size;
  // Finite as a float, or minus infinity.
  const bool possible = std::abs(bias) <= std::numeric_limits<float>::max() ||
                        (parts[2] == "-" && parts[3].length() == 3);
  if (!matches || !possible) {
    return UsageError(option + " is '" + text +
                      "'; a token's id with a number behind it is needed, such as 15043+1.5, "
                      "15043-1 or 15043-inf");
  }
  return std::pair(std::stoi(parts[1]), bias);
}

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::string from = "nrt\\'\"", to = "\n\r\t\\'\"";
    const size_t found = next == '\0' ? std::string::npos : from.find(next);
    out += found == std::string::npos ? text[i] : to[found];
    i += found == std::string::npos ? 0 : 1;
  }
  return out;
}

}  // namespace trine
