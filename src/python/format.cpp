/// Writing tensors as NumPy does: collect the elements shown, turn them into words of equal width, lay the words out.
#include "python/format.h"
#include "compute/backend.h"
#include "transfer.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hyalite/error.h"
#include "tensor/float_formats.h"

namespace hyalite::python {
namespace {

using std::size_t;

int length(const std::string& s) { return static_cast<int>(s.size()); }
std::string spaces(int n) { return std::string(static_cast<size_t>(std::max(n, 0)), ' '); }

// ---- Decimal digits ----

/// The number d.ddd x 10^exponent.
struct Decimal {
  std::string digits;
  int exponent = 0;

  int fraction() const { return std::max(0, length(digits) - 1 - exponent); }
};

void strip_zeros(std::string& digits) { digits.erase(std::max<size_t>(digits.find_last_not_of('0') + 1, 1)); }

/// std::to_chars with as much room as it needs.
template <class... Arguments>
std::string chars(int room, Arguments... arguments) {
  std::string s(static_cast<size_t>(room), '\0');
  s.resize(static_cast<size_t>(std::to_chars(s.data(), s.data() + s.size(), arguments...).ptr - s.data()));
  return s;
}

/// From the form d.ddde+xx.
Decimal parse(const std::string& scientific) {
  const size_t e = scientific.find('e');
  Decimal d;
  d.digits = scientific.substr(0, 1);
  if (e > 2) d.digits += scientific.substr(2, e - 2);
  const char* first = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(first, scientific.data() + scientific.size(), d.exponent);
  return d;
}

/// `x` rounded once to `count` digits, ties to even.
std::string rounded(double x, int count) { return chars(count + 16, x, std::chars_format::scientific, count - 1); }

/// The fewest digits that round to `x` in its own type, and of these the nearest. `x` is finite, without sign.
template <Dtype D>
Decimal shortest(double x) {
  if constexpr (D == Dtype::float32) {
    return parse(chars(32, static_cast<float>(x), std::chars_format::scientific));
  } else if constexpr (D == Dtype::float64) {
    return parse(chars(32, x, std::chars_format::scientific));
  } else {
    const auto rounds_back = [&](const std::string& text, double& back) {
      std::from_chars(text.data(), text.data() + text.size(), back);
      return encode_float<D>(back) == encode_float<D>(x);
    };
    for (int count = 1;; ++count) {
      std::string text = rounded(x, count);
      double back;
      if (rounds_back(text, back)) return parse(text);
      // Above a power of two the neighbour is twice as far as below, so the next number up may do where the nearest
      // does not. Its last digit needs no carry: that number would have been found with fewer digits.
      char& last = text[text.find('e') - 1];
      if (back < x && last != '9' && (++last, rounds_back(text, back))) return parse(text);
    }
  }
}

// ---- Real numbers ----

/// What printing needs to know of a real type.
struct RealType {
  double (*load)(const std::byte*);
  Decimal (*shortest)(double);
  double exponents_from;   ///< in a tensor
  double exponents_below;  ///< in a tensor: 1e-4 as the type holds it
  double (*ratio)(double, double);
  double scalar_exponents_from;
};

template <Dtype D>
double load(const std::byte* p) {
  if constexpr (is_small_float(D)) {
    FloatBits<D> bits;
    std::memcpy(&bits, p, sizeof bits);
    return decode_float<D>(bits);
  } else {
    std::conditional_t<D == Dtype::float32, float, double> x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
}

/// The quotient, rounded as NumPy rounds it; bfloat16 and float8, which it lacks, are left exact.
template <Dtype D>
double ratio(double a, double b) {
  if constexpr (D == Dtype::float16) {
    return decode_float<D>(encode_float<D>(static_cast<float>(a) / static_cast<float>(b)));
  } else if constexpr (D == Dtype::float32) {
    return static_cast<float>(a) / static_cast<float>(b);
  } else {
    return a / b;
  }
}

template <Dtype D>
RealType real_type() {
  const int digits = static_cast<int>(float_format<D>.mantissa_bits * 0.30102999566398120);
  double small = 1e-4;
  if constexpr (is_small_float(D)) {
    small = decode_float<D>(encode_float<D>(small));
  } else if constexpr (D == Dtype::float32) {
    small = 1e-4f;
  }
  return {&load<D>, &shortest<D>, std::pow(10.0, std::clamp(digits, 1, 8)),
          small,    &ratio<D>,    std::pow(10.0, D == Dtype::float64 ? 16 : std::max(digits, 1))};
}

RealType real_type(Dtype t) {
  switch (real_part(t)) {
    case Dtype::float16:
      return real_type<Dtype::float16>();
    case Dtype::bfloat16:
      return real_type<Dtype::bfloat16>();
    case Dtype::float32:
      return real_type<Dtype::float32>();
    case Dtype::float8_e4m3fn:
      return real_type<Dtype::float8_e4m3fn>();
    case Dtype::float8_e5m2:
      return real_type<Dtype::float8_e5m2>();
    default:
      assert(real_part(t) == Dtype::float64);
      return real_type<Dtype::float64>();
  }
}

std::string sign_of(double x, bool plus) { return std::signbit(x) ? "-" : plus ? "+" : ""; }

/// NaN has no sign of its own.
std::string not_finite(double x, bool plus) {
  return std::isnan(x) ? (plus ? "+nan" : "nan") : sign_of(x, plus) + "inf";
}

/// "e-05", with `width` digits or more.
std::string exponent_text(int exponent, int width) {
  const std::string digits = std::to_string(std::abs(exponent));
  return (exponent < 0 ? "e-" : "e+") + std::string(static_cast<size_t>(std::max(width - length(digits), 0)), '0') +
         digits;
}

int exponent_width(int exponent) { return std::max(2, length(std::to_string(std::abs(exponent)))); }

/// A number cut at its point.
struct Parts {
  std::string left, right;
};

/// Without exponent.
Parts positional(const Decimal& d) {
  std::string digits = d.digits;
  if (d.exponent < 0) digits.insert(0, static_cast<size_t>(-d.exponent), '0');
  const size_t point = static_cast<size_t>(std::max(d.exponent, 0)) + 1;
  if (digits.size() < point) digits.append(point - digits.size(), '0');
  return {digits.substr(0, point), digits.substr(point)};
}

/// Turns real numbers into words of equal width with the points below each other.
class RealFormat {
 public:
  RealFormat(std::span<const double> values, const RealType& type, const FormatOptions& options, bool plus)
      : type_(type), precision_(options.precision), plus_(plus) {
    choose_notation(values, options.suppress);
    bool any_finite = false, all_finite = true, negative_infinity = plus;
    for (const double x : values) {
      const bool finite = std::isfinite(x);
      if (finite) measure(x);
      any_finite |= finite;
      all_finite &= finite;
      negative_infinity |= !finite && x < 0;
    }
    if (exponents_ && any_finite) {
      precision_ = right_;
      right_ += 2 + exponent_width_;
    }
    if (!all_finite) left_ = std::max(left_, 3 + (negative_infinity ? 1 : 0) - right_ - 1);
  }

  std::string operator()(double x) const {
    if (!std::isfinite(x)) {
      const std::string text = not_finite(x, plus_);
      return spaces(left_ + right_ + 1 - length(text)) + text;
    }
    const Parts parts = exponents_ ? scientific(x) : fixed(x);
    return spaces(left_ - length(parts.left)) + parts.left + "." + parts.right + spaces(right_ - length(parts.right));
  }

 private:
  void choose_notation(std::span<const double> values, bool suppress) {
    double largest = 0, smallest = std::numeric_limits<double>::infinity();
    for (const double x : values) {
      if (!std::isfinite(x) || x == 0) continue;
      largest = std::max(largest, std::abs(x));
      smallest = std::min(smallest, std::abs(x));
    }
    exponents_ =
        largest >= type_.exponents_from ||
        (largest > 0 && !suppress && (smallest < type_.exponents_below || type_.ratio(largest, smallest) > 1000));
  }

  /// Widens the columns so that `x` fits.
  void measure(double x) {
    if (!exponents_) {
      const Parts parts = fixed(x);
      left_ = std::max(left_, length(parts.left));
      right_ = std::max(right_, length(parts.right));
      return;
    }
    Decimal d = type_.shortest(std::abs(x));
    if (length(d.digits) - 1 > precision_) d = parse(rounded(std::abs(x), precision_ + 1));
    strip_zeros(d.digits);
    left_ = std::max(left_, 1 + length(sign_of(x, plus_)));
    right_ = std::max(right_, length(d.digits) - 1);
    exponent_width_ = std::max(exponent_width_, exponent_width(d.exponent));
  }

  Parts fixed(double x) const {
    const Decimal d = type_.shortest(std::abs(x));
    Parts parts;
    if (d.fraction() <= precision_) {
      parts = positional(d);
    } else {
      const std::string text = chars(precision_ + 330, std::abs(x), std::chars_format::fixed, precision_);
      const size_t point = std::min(text.find('.'), text.size());
      parts = {text.substr(0, point), text.substr(std::min(point + 1, text.size()))};
    }
    parts.right.erase(parts.right.find_last_not_of('0') + 1);
    parts.left = sign_of(x, plus_) + parts.left;
    return parts;
  }

  /// All with the same number of digits: past the shortest form they are those of the exact value.
  Parts scientific(double x) const {
    Decimal d = type_.shortest(std::abs(x));
    if (length(d.digits) - 1 != precision_) d = parse(rounded(std::abs(x), precision_ + 1));
    return {sign_of(x, plus_) + d.digits[0], d.digits.substr(1) + exponent_text(d.exponent, exponent_width_)};
  }

  RealType type_;
  int precision_;
  bool plus_;
  bool exponents_ = false;
  int left_ = 0, right_ = 0;  // characters before and after the point
  int exponent_width_ = 2;
};

/// A number on its own, with all its digits; `point` asks for 1.0 instead of 1.
std::string scalar_text(double x, const RealType& type, bool plus, bool point) {
  if (!std::isfinite(x)) return not_finite(x, plus);
  const Decimal d = type.shortest(std::abs(x));
  if (x == 0 || (std::abs(x) >= 1e-4 && std::abs(x) < type.scalar_exponents_from)) {
    Parts parts = positional(d);
    if (parts.right.empty() && point) parts.right = "0";
    return sign_of(x, plus) + parts.left + (parts.right.empty() ? "" : "." + parts.right);
  }
  return sign_of(x, plus) + d.digits[0] + (d.digits.size() > 1 ? "." + d.digits.substr(1) : "") +
         exponent_text(d.exponent, 2);
}

// ---- Elements to words ----

using Addresses = std::vector<const std::byte*>;
using Words = std::vector<std::string>;

template <class T>
std::string integer_text(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return std::to_string(x);
}

std::string (*integer_reader(Dtype t))(const std::byte*) {
  switch (t) {
    case Dtype::int8:
      return integer_text<std::int8_t>;
    case Dtype::int16:
      return integer_text<std::int16_t>;
    case Dtype::int32:
      return integer_text<std::int32_t>;
    case Dtype::uint8:
      return integer_text<std::uint8_t>;
    case Dtype::uint16:
      return integer_text<std::uint16_t>;
    case Dtype::uint32:
      return integer_text<std::uint32_t>;
    case Dtype::uint64:
      return integer_text<std::uint64_t>;
    default:
      assert(t == Dtype::int64);
      return integer_text<std::int64_t>;
  }
}

Words integer_words(const Addresses& elements, Dtype t) {
  const auto read = integer_reader(t);
  Words words;
  int width = 0;
  for (const std::byte* p : elements) {
    words.push_back(read(p));
    width = std::max(width, length(words.back()));
  }
  for (std::string& w : words) w.insert(0, static_cast<size_t>(width - length(w)), ' ');
  return words;
}

std::vector<double> load_all(const Addresses& elements, const RealType& type, size_t offset) {
  std::vector<double> values;
  values.reserve(elements.size());
  for (const std::byte* p : elements) values.push_back(type.load(p + offset));
  return values;
}

Words float_words(const Addresses& elements, Dtype t, const FormatOptions& options) {
  const RealType type = real_type(t);
  const std::vector<double> re = load_all(elements, type, 0);
  const RealFormat real(re, type, options, false);
  Words words;
  for (const double x : re) words.push_back(real(x));
  if (!is_complex(t)) return words;
  const std::vector<double> im = load_all(elements, type, itemsize(real_part(t)));
  const RealFormat imaginary(im, type, options, true);
  for (size_t i = 0; i < words.size(); ++i) {
    std::string text = imaginary(im[i]);
    text.insert(text.find_last_not_of(' ') + 1, 1, 'j');
    words[i] += text;
  }
  return words;
}

Words words_of(const Addresses& elements, Dtype t, bool scalar, const FormatOptions& options) {
  switch (kind(t)) {
    case Kind::boolean: {
      Words words;
      for (const std::byte* p : elements) words.push_back(*p == std::byte{0} ? "False" : scalar ? "True" : " True");
      return words;
    }
    case Kind::integer:
      return integer_words(elements, t);
    default:
      return float_words(elements, t, options);
  }
}

/// str() of a tensor without dimensions: that of the Python number.
std::string scalar_str(const TensorImpl& t) {
  const Dtype dtype = t.dtype();
  if (kind(dtype) < Kind::floating) return words_of({host_address(t)}, dtype, true, {})[0];
  const RealType type = real_type(dtype);
  const double re = type.load(host_address(t));
  if (!is_complex(dtype)) return scalar_text(re, type, false, true);
  const double im = type.load(host_address(t) + itemsize(real_part(dtype)));
  if (re == 0 && !std::signbit(re)) return scalar_text(im, type, false, false) + "j";
  return "(" + scalar_text(re, type, false, false) + scalar_text(im, type, true, false) + "j)";
}

// ---- Layout ----

/// Which elements are shown, and where their words stand.
class Layout {
 public:
  Layout(const TensorImpl& t, const FormatOptions& options, std::string_view separator)
      : t_(t), options_(options), separator_(separator), summary_(t.numel() > options.threshold) {
    collect(0, host_address(t));
    words_ = words_of(elements_, t.dtype(), t.ndim() == 0, options);
  }

  /// The words in brackets; lines after the first are indented by `indent`.
  std::string text(int indent, int width) {
    next_ = words_.begin();
    return block(0, indent, width);
  }

 private:
  bool skips(int axis) const { return summary_ && t_.shape()[axis] > 2 * std::int64_t{options_.edgeitems}; }
  std::int64_t shown(int axis) const { return skips(axis) ? 2 * std::int64_t{options_.edgeitems} : t_.shape()[axis]; }

  void collect(int axis, const std::byte* p) {
    if (axis == t_.ndim()) {
      elements_.push_back(p);
      return;
    }
    const std::int64_t step = t_.strides()[axis] * static_cast<std::int64_t>(itemsize(t_.dtype()));
    for (std::int64_t i = 0; i < shown(axis); ++i) {
      const bool behind = skips(axis) && i >= options_.edgeitems;
      collect(axis + 1, p + (behind ? t_.shape()[axis] - shown(axis) + i : i) * step);
    }
  }

  std::string block(int axis, int indent, int width) {
    if (axis == t_.ndim()) return *next_++;
    return "[" + (axis + 1 == t_.ndim() ? row(axis, indent, width) : rows(axis, indent, width)) + "]";
  }

  /// The last axis: words in lines of at most `width` characters, bracket included.
  std::string row(int axis, int indent, int width) {
    std::string lines, line = spaces(indent);
    const auto add = [&](const std::string& word) {
      if (length(line) + length(word) > width - 1 && length(line) > indent) {
        line.erase(line.find_last_not_of(' ') + 1);
        lines += line + "\n";
        line = spaces(indent);
      }
      line += word;
    };
    for (std::int64_t i = 0; i < shown(axis); ++i) {
      if (i > 0) line += separator_;
      if (i == options_.edgeitems && skips(axis)) {
        add("...");
        line += separator_;
      }
      add(*next_++);
    }
    return (lines + line).substr(static_cast<size_t>(indent));
  }

  /// The other axes: one block below the other, with a blank line more for each further axis inside.
  std::string rows(int axis, int indent, int width) {
    std::string between(separator_.substr(0, separator_.find(' ')));
    between.append(static_cast<size_t>(t_.ndim() - axis - 1), '\n');
    between += spaces(indent);
    std::string text;
    for (std::int64_t i = 0; i < shown(axis); ++i) {
      if (i > 0) text += between;
      if (i == options_.edgeitems && skips(axis)) text += "..." + between;
      text += block(axis + 1, indent + 1, width - 1);
    }
    return text;
  }

  const TensorImpl& t_;
  const FormatOptions& options_;
  std::string_view separator_;
  bool summary_;
  Addresses elements_;
  Words words_;
  Words::const_iterator next_;
};

// ---- repr ----

constexpr std::string_view prefix = "tensor(";

/// What the elements do not tell: shape, dtype, and what the caller adds.
std::string extras(const TensorImpl& t, const FormatOptions& options) {
  constexpr DtypeSet defaults = bit(Dtype::boolean) | bit(Dtype::int64) | bit(Dtype::float32) | bit(Dtype::complex64);
  const bool empty = t.numel() == 0;
  std::string text;
  const auto add = [&](const std::string& extra) { text += (text.empty() ? "" : ", ") + extra; };
  if ((empty && !(t.ndim() == 1 && t.shape()[0] == 0)) || t.numel() > options.threshold) {
    add("shape=" + to_string(t.shape()));
  }
  if (empty || !contains(defaults, t.dtype())) add("dtype=" + std::string(name(t.dtype())));
  const size_t suffix = std::min(options.suffix.find_first_not_of(", "), options.suffix.size());
  if (suffix < options.suffix.size()) add(options.suffix.substr(suffix));
  return text;
}

std::string repr(const TensorImpl& t, const FormatOptions& options) {
  std::string text(prefix);
  const int indent = length(text);
  text += t.numel() == 0 ? "[]" : Layout(t, options, ", ").text(indent + 1, options.linewidth - 1);
  const std::string extra = extras(t, options);
  if (extra.empty()) return text + ")";
  text += ",";
  const int last_line = static_cast<int>(text.size() - (text.rfind('\n') + 1));
  const bool fits = last_line + 1 + length(extra) + 1 <= options.linewidth;
  return text + (fits ? " " : "\n" + spaces(indent)) + extra + ")";
}

std::string str(const TensorImpl& t, const FormatOptions& options) {
  if (t.ndim() == 0) return scalar_str(t);
  return t.numel() == 0 ? "[]" : Layout(t, options, " ").text(1, options.linewidth);
}

std::mutex defaults_mutex;
FormatOptions defaults;

void require(std::int64_t value, std::int64_t least, const char* option) {
  if (value >= least) return;
  throw ValueError("set_printoptions(): " + std::string(option) + " is " + std::to_string(value) + "; write " +
                       std::to_string(least) + " or more",
                   {{option, value}});
}

}  // namespace

std::string format_tensor(const TensorImpl& t, const FormatOptions& options, Form form) {
  if (t.device().kind == DeviceKind::meta) {
    return "tensor(..., shape=" + to_string(t.shape()) + ", dtype=" + std::string(name(t.dtype())) + ", device='meta'" +
           (form == Form::repr ? options.suffix : "") + ")";
  }
  if (t.device().kind != DeviceKind::cpu && !is_traced(t.device())) {
    const TensorRef here = on_host(t, "repr");
    FormatOptions there = options;
    there.suffix = ", device='" + to_string(t.device()) + "'" + options.suffix;
    return form == Form::repr ? repr(*here, there) : str(*here, options);
  }
  assert(t.numel() == 0 || host_address(t) != nullptr);
  return form == Form::repr ? repr(t, options) : str(t, options);
}

FormatOptions default_format() {
  const std::lock_guard lock(defaults_mutex);
  return defaults;
}

void set_default_format(FormatOptions options) {
  require(options.precision, 0, "precision");
  require(options.threshold, 0, "threshold");
  require(options.edgeitems, 1, "edgeitems");
  require(options.linewidth, 0, "linewidth");
  options.suffix.clear();
  const std::lock_guard lock(defaults_mutex);
  defaults = std::move(options);
}

}  // namespace hyalite::python
