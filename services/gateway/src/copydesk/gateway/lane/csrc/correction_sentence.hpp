// Which texts are one sentence beyond doubt.
#pragma once

#include <cstddef>

#include "forms.hpp"

namespace copydesk {

// Beyond this copydesk.text.sentences looks at a text in several windows.
constexpr std::size_t kLongestSentence = 1000;

// Whether copydesk.text.segments makes of `text` one segment, of all of it, as it stands, which can be corrected; a
// few of those that it makes one of are not plain enough to be known here.
bool is_plain_sentence(Bytes text);

}  // namespace copydesk
