/// Fused groups as lists of kernel calls over registers.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "compute/cpu/kernels.h"
#include "compute/cpu/reduce_walk.h"
#include "compute/lazy/program.h"

namespace hyalite::cpu {

/// Where the elements of a register are while a block is computed.
struct Place {
  enum Kind : std::uint8_t {
    nowhere,
    input,
    number,
    block,   ///< between two steps
    kept,    ///< of a whole row, from one pass over it to the next
    spread,  ///< a row's value, as often as the row has elements
    row,     ///< one value a row
    output,
  } kind = nowhere;
  int index = 0;
};

/// What a kernel computes, for who writes it anew.
struct Formula {
  const OpInfo* op = nullptr;
  Dtype dtype = Dtype::float32;  ///< it is computed in
  int operand = -1;              ///< whose gradient; -1: the op itself
  bool plain = true;             ///< operands are of that dtype
  bool from_nothings = false;    ///< the incoming gradient may be nothing somewhere
  double tiny = -1;              ///< what is not above it is 0; below 0 for none
  int attributes = 0;
};

/// One call for each block.
struct Instruction {
  enum Kind : std::uint8_t { kernel, cast, move, generated } kind = kernel;
  ElementwiseFn run = nullptr;
  std::array<double, 4> attr{};
  Dtype from = Dtype::float32, to = Dtype::float32;  // of a cast or a move
  std::vector<int> in, out;                          // registers; -1: not read
  bool streams = false;                              // all it writes are outputs that nobody reads again
  Formula formula = {};                              // of a kernel
  std::vector<double> numbers = {};                  // attributes of a generated kernel

  /// On `n` elements at the addresses of `in` and `out`.
  void operator()(const void* const* at, void* const* to_at, std::size_t n, bool stream) const;
};

/// The registers of a program, and the calls that compute them. Dtypes meet by casts, as in the eager ops.
class Code {
 public:
  explicit Code(const lazy::Program& p);

  std::vector<Dtype> dtype;
  std::vector<std::size_t> size;
  std::vector<Place> place;
  std::vector<int> alias;  ///< the register that has the same elements
  bool heavy = false;      ///< a transcendental function is among them
  std::string ops;         ///< names, for traces
  int generated = 0;       ///< kernels that were generated for it

  int add_register(Dtype t, Place at = {});
  /// The calls of a step that is no reduction. Casts that the list has already are not made again.
  void add(const lazy::Program::Step& s, std::vector<Instruction>& list, int pass = 0);
  /// The register with the elements in another dtype.
  int converted(int r, Dtype to, std::vector<Instruction>& list, int pass);

 private:
  std::map<std::tuple<int, int, Dtype>, int> converted_;  // by pass
};

/// The last call that reads the register, the first that writes it; -1 where there is none.
int last_read(const std::vector<Instruction>& list, int r);
int written_by(const std::vector<Instruction>& list, int r);

/// Gives blocks to the registers that the list writes and that have no place, each for as long as it is needed:
/// `needed(r, i)` says whether register r is read after instruction i. How many blocks that takes.
template <class Needed>
int give_blocks(const std::vector<Instruction>& list, Code& code, Needed needed) {
  std::vector<int> free;
  int count = 0;
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    const Instruction& now = list[static_cast<std::size_t>(i)];
    for (const int r : now.out) {
      Place& place = code.place[static_cast<std::size_t>(r)];
      if (place.kind != Place::nowhere) continue;
      if (free.empty()) free.push_back(count++);
      place = {Place::block, free.back()};
      free.pop_back();
    }
    // After the results have theirs: an instruction does not write what it reads.
    std::vector<int> ended = now.in;
    ended.insert(ended.end(), now.out.begin(), now.out.end());
    std::ranges::sort(ended);
    ended.erase(std::ranges::unique(ended).begin(), ended.end());
    for (const int r : ended) {
      if (r < 0 || code.place[static_cast<std::size_t>(r)].kind != Place::block || needed(r, i)) continue;
      free.push_back(code.place[static_cast<std::size_t>(r)].index);
    }
  }
  return count;
}

/// The numbers of a program, each as often as a chunk has elements.
class Numbers {
 public:
  void lay(const lazy::Program& p, std::size_t count);
  std::byte* at(int k) const { return first_ + static_cast<std::size_t>(k) * bytes_; }

 private:
  reduce_walk::Buffer memory_;
  std::byte* first_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A thread's memory for blocks, at least so many bytes, aligned to 64.
std::byte* scratch(std::size_t bytes);

}  // namespace hyalite::cpu
