// trine tokenize: text to ids and pieces, and back.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/commands/commands.h"
#include "src/core/quote.h"

namespace trine {
namespace {

Status DecodeIds(const Tokenizer& tokenizer, const std::string& text) {
  // Control tokens are shown, and the space that encoding puts in front is not.
  bool drop_space = tokenizer.adds_space();
  const auto piece = [&](int32_t id) {
    std::string_view shown = tokenizer.Piece(id);
    if (tokenizer.Type(id) == TokenType::kControl || shown.empty()) return shown;
    if (drop_space && shown.starts_with(' ')) shown.remove_prefix(1);
    drop_space = false;
    return shown;
  };
  std::istringstream stream(text);
  std::string decoded;
  for (std::string word; stream >> word;) {
    std::istringstream one(word);
    int64_t id = -1;
    if (!(one >> id) || !one.eof() || id < 0 || id >= tokenizer.size()) {
      return BadInput("--decode: " + Quote(word) + " is not a token id; 0 to " +
                      std::to_string(tokenizer.size() - 1) + " exist");
    }
    decoded += piece(static_cast<int32_t>(id));
  }
  decoded += '\n';
  std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  return {};
}

// Pieces may be parts of characters; JSON text is not.
std::string Printable(std::string_view piece) {
  return nlohmann::json(piece).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Status TokenizeCommand(const Settings& settings) {
  TRINE_ASSIGN(const std::unique_ptr<Tokenizer> opened, OpenTokenizer(settings.model));
  const Tokenizer& tokenizer = *opened;
  if (!settings.decode.empty()) return DecodeIds(tokenizer, settings.decode);
  const auto special =
      settings.parse_special ? Tokenizer::Special::kParse : Tokenizer::Special::kAsText;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  TRINE_ASSIGN(const std::vector<std::string> prompts, ReadPrompts(settings));
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    TRINE_ASSIGN(const std::vector<int32_t> ids, tokenizer.Encode(prompts[prompt], special));
    if (prompt > 0 && !settings.json) std::printf("\n");
    for (const int32_t id : ids) {
      const std::string piece = Printable(tokenizer.Piece(id));
      if (!settings.json) std::printf("%d\t%s\n", id, piece.c_str());
      list.push_back({{"prompt", prompt}, {"id", id}, {"piece", nlohmann::json::parse(piece)}});
    }
  }
  if (settings.json) std::printf("%s\n", list.dump().c_str());
  return {};
}

}  // namespace trine
