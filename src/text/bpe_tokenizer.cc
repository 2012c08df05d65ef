#include "src/text/bpe_tokenizer.h"

#include <bitset>
#include <limits>

#include "src/text/sentence_piece.h"
#include "src/text/utf8.h"

namespace trine {
namespace {

std::string HexOf(unsigned char byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("0x") + kHex[byte >> 4] + kHex[byte & 15];
}

Status CheckText(std::string_view text) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int32_t>::max();
  const auto size = static_cast<int64_t>(text.size());
  if (size > kMaxBytes) {
    return BadInput("text of " + std::to_string(size) + " bytes is longer than " +
                    std::to_string(kMaxBytes) + "; split it");
  }
  const int64_t valid = ValidUtf8Prefix(text);
  if (valid == size) return {};
  const auto byte = static_cast<unsigned char>(text[static_cast<size_t>(valid)]);
  return BadInput("text is not valid UTF-8: byte " + std::to_string(valid) + " of " +
                  std::to_string(size) + " is " + HexOf(byte) + "; send it as UTF-8");
}

// The spans as one text, and where in it control tokens count.
struct JoinedText {
  explicit JoinedText(std::span<const Tokenizer::TextSpan> spans) {
    for (const Tokenizer::TextSpan& span : spans) {
      const int64_t begin = size;
      size += static_cast<int64_t>(span.text.size());
      if (spans.size() > 1) copy += span.text;
      if (span.special != Tokenizer::Special::kParse || begin == size) continue;
      if (!parse.empty() && parse.back().end == begin) {
        parse.back().end = size;
      } else {
        parse.push_back({begin, size});
      }
    }
    text = spans.size() == 1 ? spans[0].text : copy;
  }
  JoinedText(const JoinedText&) = delete;

  std::string_view text;
  ByteRanges parse;
  int64_t size = 0;
  std::string copy;
};

std::string_view Part(std::string_view text, int64_t begin, int64_t end) {
  return text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  Result<std::vector<int32_t>> Encode(std::span<const TextSpan> spans) const override;

  std::string_view Piece(int32_t id) const override {
    return Has(id) ? vocabulary().pieces[id] : std::string_view();
  }
  TokenType Type(int32_t id) const override {
    return Has(id) ? vocabulary().types[static_cast<size_t>(id)] : TokenType::kUnused;
  }
  int64_t size() const override { return vocabulary().size(); }
  std::string_view model() const override { return parts_.model; }
  std::string_view pre() const override { return parts_.pre; }
  int32_t bos() const override { return vocabulary().bos; }
  int32_t eos() const override { return vocabulary().eos; }
  int32_t pad() const override { return vocabulary().pad; }
  bool add_bos() const override { return vocabulary().add_bos; }
  bool add_eos() const override { return vocabulary().add_eos; }
  bool adds_space() const override { return parts_.prefix == TokenizerParts::Prefix::kText; }
  const std::vector<int32_t>& end_of_generation() const override {
    return vocabulary().end_of_generation;
  }
  std::string_view chat_template() const override { return vocabulary().chat_template; }

 private:
  // What the encoding of one text writes to.
  struct Job {
    explicit Job(const JoinedText& joined) : text(joined), regex(joined.text.size()) {}

    const JoinedText& text;
    RegexScratch regex;
    MergeScratch merge;
    std::string normalized, prefixed;
    std::vector<int32_t> ids;
  };

  // Models pad their vocabulary, so an id behind the last token is no mistake: it has no text.
  bool Has(int32_t id) const { return id >= 0 && id < size(); }
  const Vocabulary& vocabulary() const { return parts_.vocabulary; }

  Status EncodeStretch(int64_t begin, int64_t end, Job* job) const;
  Status EncodePlain(std::string_view text, Job* job) const;
  Status CheckMissing(const std::bitset<256>& missing) const;
  std::string_view Normalize(std::string_view text, Job* job) const;

  const TokenizerParts parts_;
};

Result<std::vector<int32_t>> BpeTokenizer::Encode(std::span<const TextSpan> spans) const {
  const JoinedText joined(spans);
  TRINE_RETURN_IF_ERROR(CheckText(joined.text));
  Job job(joined);
  job.ids.reserve(joined.text.size() / 4 + 4);  // about four bytes a token in prose
  SpecialTokens::Cursor cursor(parts_.special, joined.text, joined.parse);
  int64_t done = 0;
  while (const auto match = cursor.Next()) {
    TRINE_RETURN_IF_ERROR(EncodeStretch(done, match->begin, &job));
    job.ids.push_back(match->id);
    done = match->end;
  }
  TRINE_RETURN_IF_ERROR(EncodeStretch(done, joined.size, &job));
  TRINE_RETURN_IF_ERROR(CheckMissing(job.merge.missing));
  return std::move(job.ids);
}

// Of the joined text, between two of the special tokens.
Status BpeTokenizer::EncodeStretch(int64_t begin, int64_t end, Job* job) const {
  if (begin >= end) return {};
  const std::string_view text = Normalize(Part(job->text.text, begin, end), job);
  if (parts_.normalized_special.empty()) return EncodePlain(text, job);
  // Where the text was changed no control token is looked for, so the ranges do not matter.
  SpecialTokens::Cursor cursor(parts_.normalized_special, text, job->text.parse, begin);
  int64_t done = 0;
  while (const auto match = cursor.Next()) {
    if (done < match->begin) {
      TRINE_RETURN_IF_ERROR(EncodePlain(Part(text, done, match->begin), job));
    }
    job->ids.push_back(match->id);
    done = match->end;
  }
  return EncodePlain(text.substr(static_cast<size_t>(done)), job);
}

// `text` itself, or what is valid until the next call.
std::string_view BpeTokenizer::Normalize(std::string_view text, Job* job) const {
  if (parts_.nfc != nullptr) text = parts_.nfc->Apply(text, &job->normalized);
  const bool prefix = parts_.prefix == TokenizerParts::Prefix::kText;
  size_t mark = parts_.spaces_are_marks ? text.find(kSpaceMark) : std::string_view::npos;
  if (!prefix && mark == std::string_view::npos) return text;
  std::string& out = job->normalized;
  out.assign(prefix ? " " : "");
  size_t done = 0;
  for (; mark != std::string_view::npos; mark = text.find(kSpaceMark, done)) {
    out.append(text.substr(done, mark - done)).append(" ");
    done = mark + kSpaceMark.size();
  }
  out.append(text.substr(done));
  return out;
}

Status BpeTokenizer::EncodePlain(std::string_view text, Job* job) const {
  if (text.empty()) return {};
  if (parts_.prefix == TokenizerParts::Prefix::kStretch && text.front() != ' ') {
    job->prefixed.assign(" ").append(text);
    text = job->prefixed;
  }
  const auto encode = [this, job](std::string_view piece) {
    parts_.bpe->Encode(piece, &job->merge, &job->ids);
  };
  if (parts_.words != nullptr) return parts_.words->Split(text, &job->regex, encode);
  parts_.joins->Split(text, encode);
  return {};
}

// A byte that the vocabulary does not have is left out, as Hugging Face does. One that it has as a
// control token alone would be lost where it is text, silently.
Status BpeTokenizer::CheckMissing(const std::bitset<256>& missing) const {
  if (missing.none()) return {};
  for (int64_t id = 0; id < size(); ++id) {
    const std::string_view piece = Piece(static_cast<int32_t>(id));
    if (piece.size() != 1 || Type(static_cast<int32_t>(id)) != TokenType::kControl) continue;
    const auto byte = static_cast<unsigned char>(piece[0]);
    if (!missing[byte]) continue;
    return BadInput("the only token of byte " + HexOf(byte) +
                    " is a control token, and the text has it; leave the character out");
  }
  return {};
}

}  // namespace

std::unique_ptr<Tokenizer> MakeTokenizer(TokenizerParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace trine
