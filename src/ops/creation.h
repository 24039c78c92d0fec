/// Tensors from rules: constants, ranges, identities. They have no operands; the device is an attribute.
#pragma once

#include "ops/op_info.h"

namespace hyalite {

/// Memory that is not initialised.
struct EmptyBackward : Kernel<EmptyBackward, 0> {
  static constexpr OpSchema schema{.name = "empty", .types = movable, .kind = OpKind::primitive, .own_front_end = true};
  struct Attr {
    Ints shape;
    Dtype dtype = Dtype::float32;
    std::optional<Device> device;
    static constexpr std::array<std::string_view, 3> names{"shape", "dtype", "device"};
    static constexpr int required = 1;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {a.dtype, a.shape}; }
};

/// A number in every place.
struct FullBackward : Kernel<FullBackward, 0> {
  static constexpr OpSchema schema{.name = "full", .types = movable, .kind = OpKind::primitive, .own_front_end = true};
  struct Attr {
    Ints shape;
    Scalar value;
    Dtype dtype = Dtype::float32;
    std::optional<Device> device;
    static constexpr std::array<std::string_view, 4> names{"shape", "value", "dtype", "device"};
    static constexpr int required = 2;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {a.dtype, a.shape}; }
};

/// `count` elements start + i * step, each rounded once; integers wrap into the dtype as casts do.
struct ArangeBackward : Kernel<ArangeBackward, 0> {
  static constexpr OpSchema schema{
      .name = "arange", .types = movable, .kind = OpKind::primitive, .own_front_end = true};
  struct Attr {
    Scalar start, step;
    std::int64_t count = 0;
    Dtype dtype = Dtype::float32;
    std::optional<Device> device;
    static constexpr std::array<std::string_view, 5> names{"start", "step", "count", "dtype", "device"};
    static constexpr int required = 3;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {a.dtype, DimList{a.count}}; }
};

/// `count` elements from start to stop; the last is stop exactly. Without `endpoint` the step is (stop - start) /
/// count.
struct LinspaceBackward : Kernel<LinspaceBackward, 0> {
  static constexpr OpSchema schema{
      .name = "linspace", .types = movable, .kind = OpKind::primitive, .own_front_end = true};
  struct Attr {
    double start = 0, stop = 0;
    std::int64_t count = 0;
    Dtype dtype = Dtype::float32;
    bool endpoint = true;
    std::optional<Device> device;
    static constexpr std::array<std::string_view, 6> names{"start", "stop", "count", "dtype", "endpoint", "device"};
    static constexpr int required = 3;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {a.dtype, DimList{a.count}}; }
};

/// Zeros with ones on diagonal k.
struct EyeBackward : Kernel<EyeBackward, 0> {
  static constexpr OpSchema schema{.name = "eye", .types = movable, .kind = OpKind::primitive, .own_front_end = true};
  struct Attr {
    std::int64_t rows = 0, columns = 0, k = 0;
    Dtype dtype = Dtype::float32;
    std::optional<Device> device;
    static constexpr std::array<std::string_view, 5> names{"rows", "columns", "k", "dtype", "device"};
    static constexpr int required = 2;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {a.dtype, DimList{a.rows, a.columns}}; }
};

using Creation = OpList<EmptyBackward, FullBackward, ArangeBackward, LinspaceBackward, EyeBackward>;

}  // namespace hyalite
