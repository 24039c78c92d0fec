/// Adds two tensors, differentiates the sum of the squares, and explains every step of the addition.
#include <hyalite/hyalite.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <span>

namespace hl = hyalite;

namespace {

void print(const char* name, const hl::Tensor& t) {
  const std::span values(static_cast<const float*>(t.data()), static_cast<std::size_t>(t.numel()));
  std::printf("%-6s (", name);
  for (const auto size : t.shape()) std::printf("%lld,", static_cast<long long>(size));
  std::printf(") ");
  for (const float v : values) std::printf(" %g", static_cast<double>(v));
  std::printf("\n");
}

void run() {
  hl::Tensor a = hl::from_values(std::array{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {2, 3});
  hl::Tensor b = hl::from_values(std::array{0.5, 0.25, 0.125}, {3});  // a row, added to each row of a
  a.requires_grad_();
  b.requires_grad_();

  const hl::Tensor c = a + b;
  print("c", c);

  const hl::Tensor loss = hl::sum(c * c);
  loss.backward();
  std::printf("loss   %g, made by %s\n", loss.item(), loss.grad_fn().c_str());
  print("a.grad", a.grad());
  print("b.grad", b.grad());

  const hl::Trace trace = hl::explain([&] { a + b; }, {.repeat = true, .expression = "a + b", .where = "main.cpp"});
  std::cout << "\n" << trace.text(100) << std::flush;
}

}  // namespace

int main() {
  std::printf("Hyalite %s\n", hl::version());
  try {
    run();
  } catch (const hl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
