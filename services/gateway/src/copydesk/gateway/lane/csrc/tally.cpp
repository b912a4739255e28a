#include "tally.hpp"

#include <algorithm>
#include <cmath>

namespace copydesk {
namespace {

constexpr int kSteps = 8, kOffset = 10 * kSteps;
constexpr double kLeast = 0.001;

template <typename Numbers, typename Convert>
PyObject* to_list(const Numbers& numbers, Convert convert) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  for (std::size_t i = 0; list != nullptr && i < numbers.size(); ++i) {
    PyObject* number = convert(numbers[i]);
    if (number == nullptr) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), number);
  }
  return list;
}

PyObject* to_tuple(const Ended& ended) {
  PyObject* buckets = to_list(ended.buckets, PyLong_FromLongLong);
  return buckets == nullptr ? nullptr : Py_BuildValue("LdN", ended.count, ended.seconds, buckets);
}

void start_anew(Ended& ended) {
  ended.count = 0;
  ended.seconds = 0.0;
  std::fill(ended.buckets.begin(), ended.buckets.end(), 0);
}

}  // namespace

int quantile_bucket(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value != 0.0 ? value : kLeast, &exponent);
  const int index = kOffset + kSteps * exponent + static_cast<int>(2 * kSteps * mantissa) - kSteps;
  return std::clamp(index, 0, kQuantileBuckets - 1);
}

Tally::Tally(std::vector<double> bounds) : bounds_(std::move(bounds)) {
  for (FormTally& tally : forms_) {
    for (Ended* ended : {&tally.answered, &tally.gone}) ended->buckets.resize(bounds_.size() + 1);
  }
}

void Tally::answered(Form form, double seconds) {
  observe(forms_[static_cast<std::size_t>(form)].answered, seconds);
  const auto bucket = static_cast<std::size_t>(quantile_bucket(seconds * 1000.0));
  latencies_[bucket] += 1.0;
  if (timed(form)) timed_[bucket] += 1.0;
}

void Tally::gone(Form form, double seconds) {
  observe(forms_[static_cast<std::size_t>(form)].gone, seconds);
}

void Tally::observe(Ended& ended, double seconds) {
  ++ended.count;
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), seconds);
  ++ended.buckets[static_cast<std::size_t>(bound - bounds_.begin())];
  ended.seconds += seconds;
}

PyObject* Tally::drain() {
  Held latencies = Held::taking(to_list(latencies_, PyFloat_FromDouble));
  Held sentences = Held::taking(to_list(timed_, PyFloat_FromDouble));
  Held forms = Held::taking(PyList_New(0));
  if (!latencies || !sentences || !forms) return nullptr;
  for (const FormTally& tally : forms_) {
    Held answered = Held::taking(to_tuple(tally.answered));
    Held gone = Held::taking(to_tuple(tally.gone));
    Held item = Held::taking(answered && gone ? PyTuple_Pack(2, answered.get(), gone.get()) : nullptr);
    if (!item || PyList_Append(forms.get(), item.get()) != 0) return nullptr;
  }
  for (FormTally& tally : forms_) {
    start_anew(tally.answered);
    start_anew(tally.gone);
  }
  latencies_.fill(0.0);
  timed_.fill(0.0);
  return Py_BuildValue("OOO(Ld)", forms.get(), latencies.get(), sentences.get(), std::exchange(recalled_, 0),
                       std::exchange(recalled_seconds_, 0.0));
}

}  // namespace copydesk
