// Plain requests to /v1/correct as tasks: one text of one sentence, of the model that is served, in English.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "correction_sentence.hpp"
#include "forms.hpp"
#include "json_reader.hpp"
#include "msgpack.hpp"

namespace copydesk {
namespace {

// An array of the two fields of CorrectSentence, the first of which is its tag.
constexpr std::string_view kTaskHead("\x92\xA7" "correct", 9);
constexpr std::size_t kLongestSubtag = 8;

bool is_subtag_letter(char byte) {
  const char lower = static_cast<char>(byte | 0x20);
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && lower >= 'a' && lower <= 'z');
}

bool same_but_for_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t index = 0; index < lower.size(); ++index) {
    if ((text[index] | 0x20) != lower[index]) return false;
  }
  return true;
}

// "auto", "en", or "en" with subtags, such as "en-US" (copydesk.gateway.validation).
bool is_english(std::string_view language) {
  if (same_but_for_case(language, "auto")) return true;
  if (!same_but_for_case(language.substr(0, 2), "en")) return false;
  for (std::size_t at = 2; at < language.size();) {
    if (language[at] != '-' && language[at] != '_') return false;
    const std::size_t start = ++at;
    while (at < language.size() && is_subtag_letter(language[at])) ++at;
    if (at == start || at - start > kLongestSubtag) return false;
  }
  return true;
}

class CorrectionRequest {
 public:
  CorrectionRequest(Bytes body, Bytes model, std::size_t most, std::string& sentence)
      : json_(body), model_(model), most_(most), sentence_(sentence) {}

  bool read() {
    if (!json_.take('{')) return false;
    do {
      if (!read_member()) return false;
    } while (json_.take(','));
    return has_text_ && json_.take('}') && json_.at_end();
  }

 private:
  bool read_member() {
    std::string_view name;
    if (!json_.name(name)) return false;
    if (name == "text") return first(has_text_) && read_sentence();
    if (name == "model") return first(has_model_) && read_model();
    return name == "language" && first(has_language_) && read_language();
  }

  // Of two members of one name, the first would not count.
  static bool first(bool& seen) {
    const bool before = seen;
    seen = true;
    return !before;
  }

  bool read_sentence() {
    JsonText text;
    if (!json_.text(text) || text.size > most_) return false;
    const std::size_t start = sentence_.size();
    append_text(text, sentence_);
    return is_plain_sentence({sentence_.data() + start, text.size});
  }

  // Some clients escape the slash of a name; it is written behind the sentence for a moment.
  bool read_model() {
    JsonText text;
    if (!json_.text(text) || text.size != model_.size) return false;
    const std::size_t start = sentence_.size();
    append_text(text, sentence_);
    const bool same = std::memcmp(sentence_.data() + start, model_.data, model_.size) == 0;
    sentence_.resize(start);
    return same;
  }

  bool read_language() {
    JsonText text;
    return json_.text(text) && !text.escaped() && is_english({text.data, text.size});
  }

  JsonReader json_;
  Bytes model_;
  std::size_t most_;
  std::string& sentence_;
  bool has_text_ = false, has_model_ = false, has_language_ = false;
};

}  // namespace

bool correction_task(Bytes body, Bytes model, std::size_t most_characters, std::string& payload,
                     std::string& sentence) {
  const std::size_t start = sentence.size();
  if (body.size > UINT32_MAX || !CorrectionRequest(body, model, most_characters, sentence).read()) {
    sentence.resize(start);
    return false;
  }
  payload.append(kTaskHead.data(), kTaskHead.size());
  msgpack::append_text_head(sentence.size() - start, payload);
  payload.append(sentence, start);
  return true;
}

}  // namespace copydesk
