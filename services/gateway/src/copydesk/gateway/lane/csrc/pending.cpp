#include "forms.hpp"
namespace copydesk {
__attribute__((weak)) bool correction_task(Bytes, Bytes, std::size_t, std::string&, std::string&) { return false; }
__attribute__((weak)) bool correction_answer(Bytes, Bytes, const Heading&, long long, std::string&) { return false; }
}
