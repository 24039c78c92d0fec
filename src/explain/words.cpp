/// The words of the trace: for each step a label, its facts by name, and why it was done so.
#include <utility>

#include "explain/recorder.h"
#include "tensor/device.h"
#include "tensor/shape.h"

namespace hyalite {
namespace {

/// A step in words.
struct Words {
  std::string label;
  Facts facts;
  std::string why;
};

/// What was said, asked by name.
class Heard {
 public:
  explicit Heard(const Sayings& said) : said_(said) {}

  template <class T>
  const T* find(Fact fact) const {
    for (const Said& s : said_) {
      if (s.fact == fact) return &std::get<T>(s.value);
    }
    return nullptr;
  }
  bool is(Fact fact) const {
    const bool* b = find<bool>(fact);
    return b != nullptr && *b;
  }
  const std::string& text(Fact fact) const { return *find<std::string>(fact); }
  std::string dtype(Fact fact) const { return std::string(name(*find<Dtype>(fact))); }
  std::int64_t number(Fact fact) const { return *find<std::int64_t>(fact); }
  /// Calls f(value, name) for each fact of the kind.
  template <class T, class F>
  void each(Fact fact, F f) const {
    for (const Said& s : said_) {
      if (s.fact == fact) f(std::get<T>(s.value), s.name);
    }
  }
  /// Those of the kind as texts, one behind the other.
  template <class T, class F>
  std::string joined(Fact fact, const char* between, F text_of) const {
    std::string all;
    each<T>(fact, [&](const T& v, const std::string&) { all += (all.empty() ? "" : between) + text_of(v); });
    return all;
  }

 private:
  const Sayings& said_;
};

std::string text_of(Dtype d) { return std::string(name(d)); }

Facts named(const Heard& h, Fact fact) {
  Facts facts;
  h.each<std::string>(fact, [&](const std::string& v, const std::string& n) { facts.emplace_back(n, v); });
  return facts;
}

std::string threads_text(std::int64_t n) { return ", " + std::to_string(n) + (n == 1 ? " thread" : " threads"); }

/// The first ops of a long list.
std::string short_list(const std::string& ops) {
  constexpr int most = 4;
  std::size_t end = 0;
  for (int i = 0; i < most && end != std::string::npos; ++i) end = ops.find(", ", end == 0 ? 0 : end + 1);
  if (end == std::string::npos) return ops;
  std::int64_t more = 0;
  for (std::size_t at = end; at != std::string::npos; at = ops.find(", ", at + 1)) ++more;
  return ops.substr(0, end) + " and " + std::to_string(more) + " more";
}

Words slot_called(const Heard& h) {
  Facts facts = named(h, Fact::operand);
  const bool binary = facts.size() > 1;
  facts.emplace_back("slot", "native");
  return {h.text(Fact::door), facts,
          binary ? "a native slot of hyalite.Tensor; the op registry is skipped" : "a native slot of hyalite.Tensor"};
}

Words aligned(const Heard& h) {
  Facts facts = named(h, Fact::operand);
  const Dtype* to = h.find<Dtype>(Fact::promoted);
  facts.emplace_back("promotion", to != nullptr ? "to " + text_of(*to) : "none");
  const std::string dtypes =
      h.is(Fact::weak) ? "a weak scalar takes the tensor's dtype" : h.joined<Dtype>(Fact::dtype, " with ", text_of);
  std::string why;
  if (h.is(Fact::by_autocast)) {
    why = "autocast fixes the dtype of " + h.text(Fact::op) + "; the guard casts";
  } else if (dtypes.empty()) {
    why = to != nullptr ? "the join of the operands' dtypes" : "nothing to align";
  } else {
    why = dtypes + (to != nullptr ? ": their join is " + text_of(*to) : ": nothing to align");
  }
  if (const auto* other = h.find<std::string>(Fact::instead)) why += "; of these operands it is " + *other;
  return {"unwrap_or_scalar, maybe_promote", facts, why};
}

Words imported(const Heard& h) {
  return {h.text(Fact::door) + ": " + h.dtype(Fact::dtype) + " copied",
          {{"byte order", h.is(Fact::swapped) ? "converted" : "native"},
           {"shape", to_string(*h.find<std::vector<std::int64_t>>(Fact::shape))}},
          h.text(Fact::reason)};
}

Words checked(const Heard& h) {
  using Sizes = std::vector<std::int64_t>;
  std::string shapes = h.joined<Sizes>(Fact::shape, " with ", [](const Sizes& s) { return to_string(s); });
  if (const auto* result = h.find<Sizes>(Fact::gives)) shapes += " gives " + to_string(*result);
  h.each<std::int64_t>(Fact::repeats, [&](std::int64_t axis, const std::string& operand) {
    shapes += "; " + operand + " has stride 0 on axis " + std::to_string(axis);
  });
  Facts facts{{"dtype", h.joined<Dtype>(Fact::dtype, h.is(Fact::mixed) ? " with " : " = ", text_of)},
              {"device", h.joined<Device>(Fact::device, " = ", [](Device d) { return to_string(d); })},
              {"shape", shapes}};
  for (auto& attribute : named(h, Fact::attribute)) facts.push_back(std::move(attribute));
  if (h.is(Fact::in_place)) facts.emplace_back("in place", "writes its left side, which keeps dtype and shape");
  return {"dtype, device, shape", facts, "accepted"};
}

Words dtype_settled(const Heard& h) {
  const std::string& op = h.text(Fact::op);
  const Dtype* autocast = h.find<Dtype>(Fact::autocast);
  return {"effective dtype " + h.dtype(Fact::dtype),
          {{"autocast", autocast != nullptr ? "on, " + text_of(*autocast) : "off"},
           {"deterministic", std::string(h.is(Fact::determinism_asked) ? "asked; " : "not asked; ") + op +
                                 (h.is(Fact::deterministic) ? " is" : " is not")}},
          "AMP policy of " + op + " is " + h.text(Fact::amp) + "; autocast is " + (autocast != nullptr ? "on" : "off")};
}

Words viewed(const Heard& h) {
  const bool copied = h.is(Fact::copied);
  return {copied ? "copy, then view" : "view",
          {{"strides", to_string(*h.find<std::vector<std::int64_t>>(Fact::strides))}},
          copied ? "strides that allow no such view: the elements are copied in row-major order first"
                 : "only shape and strides change"};
}

Words output_made(const Heard& h) {
  const std::string bytes = std::to_string(h.number(Fact::bytes)) + " bytes";
  if (h.is(Fact::in_place)) {
    return {"output in place", {{"pool", "not asked"}, {"bytes", bytes}}, "the op writes its left side"};
  }
  const bool hit = h.is(Fact::pool_hit);
  return {"output from the pool: " + bytes,
          {{"pool", std::string(hit ? "hit" : "miss") + (h.is(Fact::huge_pages) ? ", huge-page arena" : "")},
           {"bytes", bytes}},
          hit ? "a block of that size was free" : "no block of that size was free: fresh memory"};
}

/// What a loop says of itself.
void add_loop(const Heard& h, Facts& facts) {
  if (const auto* loop = h.find<std::string>(Fact::loop)) facts.emplace_back("loop", *loop);
  if (const bool* blocks = h.find<bool>(Fact::blocks)) {
    facts.emplace_back("operands", *blocks ? "in blocks of 1024 elements in L1" : "read where they lie");
  }
  if (const bool* streaming = h.find<bool>(Fact::streaming)) {
    facts.emplace_back("stores", *streaming ? "streaming: the output passes 3/4 of the last-level cache" : "cached");
  }
  const auto *threads = h.find<std::int64_t>(Fact::threads), *rows = h.find<std::int64_t>(Fact::rows);
  if (threads != nullptr) facts.emplace_back("threads", std::to_string(*threads));
  if (rows != nullptr) facts.emplace_back("rows", std::to_string(*rows));
}

std::string threads_of(const Heard& h) {
  const auto* threads = h.find<std::int64_t>(Fact::threads);
  return threads != nullptr ? threads_text(*threads) : "";
}

Words kernel_ran(const Heard& h) {
  const std::string &op = h.text(Fact::op), &isa = h.text(Fact::isa);
  Facts facts{{"kernel", op + "<" + h.dtype(Fact::computed) + "> " + isa}};
  add_loop(h, facts);
  return {op + "_" + h.dtype(Fact::dtype) + threads_of(h), facts,
          isa + " is the widest instruction set that this processor, this build and HYALITE_ISA allow"};
}

Words fused_ran(const Heard& h) {
  const std::int64_t generated = h.number(Fact::generated);
  Facts facts{{"kernel", generated > 0 ? "tier 1, " + h.text(Fact::isa) : "tier 0, " + h.text(Fact::isa)},
              {"ops", h.text(Fact::op)}};
  if (generated > 0) facts.emplace_back("generated functions", std::to_string(generated));
  if (const auto* routine = h.find<std::string>(Fact::routine)) {
    facts.emplace_back("product", *routine);
    facts.emplace_back("library", h.text(Fact::library));
    facts.emplace_back("tiles", h.text(Fact::tiles));
  }
  add_loop(h, facts);
  return {"fused: " + short_list(h.text(Fact::op)) + threads_of(h), facts,
          generated > 0 ? "tier 1: values pass from op to op in registers, by code that LLVM made"
                        : "tier 0: the eager kernels follow each other over blocks that stay in the first cache"};
}

Words node_added(const Heard& h) {
  Facts facts{{"nodes that wait", std::to_string(h.number(Fact::nodes))},
              {"bytes that wait", std::to_string(h.number(Fact::bytes))}};
  if (const std::string& line = h.text(Fact::line); !line.empty()) facts.emplace_back("most bytes wait since", line);
  return {"a node: " + h.text(Fact::op), facts, "the device computes when a value is asked for, or when enough waits"};
}

Words queued(const Heard& h) {
  Facts facts{{"ops", h.text(Fact::op)}};
  facts.emplace_back("kernel", h.text(Fact::kernel));
  return {"queued: " + short_list(h.text(Fact::op)), facts,
          "the device works by itself: this is the time of asking, and of compiling where that was needed"};
}

Words library_ran(const Heard& h) {
  const std::string &routine = h.text(Fact::routine), &library = h.text(Fact::library);
  const std::int64_t threads = h.number(Fact::threads);
  Facts facts{{"kernel", routine.empty() ? "none" : routine}};
  if (!library.empty()) facts.emplace_back("library", library);
  if (const std::string& tiles = h.text(Fact::tiles); !tiles.empty()) facts.emplace_back("tiles", tiles);
  if (threads > 0) facts.emplace_back("threads", std::to_string(threads));
  return {h.text(Fact::op) + "_" + h.dtype(Fact::dtype) + (threads > 0 ? threads_text(threads) : ""), facts,
          routine.empty()   ? "an axis is empty: nothing is multiplied"
          : library.empty() ? "integers wrap, which no BLAS does"
                            : "the library picks its own kernel; a tile is one call, on one thread"};
}

Words result_made(const Heard& h) {
  const Facts shape{{"shape", to_string(*h.find<std::vector<std::int64_t>>(Fact::shape))}};
  if (h.is(Fact::in_place)) return {"the left side", shape, "written in place; its version goes up by one"};
  return {"Storage, TensorImpl", shape, "a new handle around the buffer; no AutogradMeta yet"};
}

Words node_made(const Heard& h) {
  const std::string& saved = h.text(Fact::saved);
  return {
      h.text(Fact::node) + " node",
      {{"next_edges", h.text(Fact::edges)}, {"saved", saved.empty() ? "nothing: the gradient reads no value" : saved}},
      "GradMode is on and an operand requires grad"};
}

Words no_node(const Heard& h) {
  return {"no node",
          {},
          !h.is(Fact::grad_mode)  ? "GradMode is off"
          : !h.is(Fact::wanted)   ? "no operand requires grad"
          : h.is(Fact::parts)     ? "the ops that it is made of record themselves"
          : !h.is(Fact::gradient) ? "the op has no gradient"
                                  : "the result's dtype has no gradient"};
}

Words words(Event event, const Heard& h) {
  const auto op = [&] { return h.text(Fact::op); };
  switch (event) {
    case Event::slot_called:
      return slot_called(h);
    case Event::function_called:
      return {h.text(Fact::door), {{"op", op()}}, "a callable made from the op list"};
    case Event::function_direct:
      return {h.text(Fact::door), {{"op", op()}}, "one dtype, which the op takes: nothing to align"};
    case Event::aligned:
      return aligned(h);
    case Event::not_promoted:
      return {"strict", {}, "_C_engine promotes nothing"};
    case Event::indices_unwrapped:
      return {"unwrap", {}, "indices keep their dtype"};
    case Event::dtype_given:
      return {"unwrap", {{"promotion", "none"}}, "dtype= fixes the dtype"};
    case Event::numbers_compared:
      return {"compare_numbers", {}, "Python's own numbers compare exactly"};
    case Event::no_operands:
      return {"no operands", {}, "the attributes say what is made"};
    case Event::unknown_operand:
      return {"unknown operand", {}, "NotImplemented: the other operand's type is asked next"};
    case Event::handed_over:
      return {h.find<std::string>(Fact::instead) != nullptr ? h.text(Fact::instead) + "(a)" : op() + "(a, b)",
              {},
              "handles cross by reference count"};
    case Event::wrapped:
      return {"wrap: Tensor", {{"type", "hyalite.Tensor"}}, "an object around the handle; nothing is copied"};
    case Event::imported:
      return imported(h);
    case Event::import_failed:
      return {h.text(Fact::door) + ": no memory for a copy", {}, ""};
    case Event::checked:
      return checked(h);
    case Event::dtype_settled:
      return dtype_settled(h);
    case Event::backend_found:
      return {"for_device(" + h.text(Fact::device) + ")",
              {{"backends", h.text(Fact::backends)}},
              "the operands live on " + h.text(Fact::device)};
    case Event::viewed:
      return viewed(h);
    case Event::output_made:
      return output_made(h);
    case Event::kernel_ran:
      return kernel_ran(h);
    case Event::fused_ran:
      return fused_ran(h);
    case Event::library_ran:
      return library_ran(h);
    case Event::node_added:
      return node_added(h);
    case Event::queued:
      return queued(h);
    case Event::fetched:
      return {"values arrive",
              {{"bytes", std::to_string(h.number(Fact::bytes))}},
              "everything asked of the device before is done by then; the copy is counted"};
    case Event::nothing_computed:
      return {"nothing to compute", {}, "tensors on meta have a shape and no values"};
    case Event::result_made:
      return result_made(h);
    case Event::node_made:
      return node_made(h);
    case Event::no_node:
      return no_node(h);
    case Event::handle_returned:
      return {"TensorImpl handle", {}, "a count goes up, no data moves"};
    case Event::raised:
      return {"raised", {}, h.text(Fact::reason)};
  }
  return {};
}

}  // namespace

void Recorder::took_part(std::string_view op, std::string_view node) {
  RecordedOp& o = current_op();
  const std::string kernel = !o.library.empty() ? o.library : o.isa.empty() ? "Kernel" : "Kernel " + o.isa;
  o.participants = {"User",
                    "front end",
                    "_C_engine." + std::string(op),
                    std::string(node),
                    "SchemaGuard",
                    "Backend " + o.result_device,
                    kernel,
                    "Autograd"};
}

void Recorder::end(Event event, const Sayings& said) {
  stop();
  const Heard heard(said);
  has_effects |= event == Event::checked && heard.is(Fact::in_place);
  Words w = words(event, heard);
  end(std::move(w.label), std::move(w.facts), std::move(w.why));
}

}  // namespace hyalite
