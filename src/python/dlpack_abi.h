/// The structures of DLPack 1.1 (https://dmlc.github.io/dlpack/latest/c_api.html): a public binary interface.
#pragma once

#include <cstdint>

namespace hyalite::dlpack {

inline constexpr std::uint32_t major_version = 1;
inline constexpr std::uint32_t minor_version = 1;

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, opencl = 4, metal = 8, rocm_host = 11 };

enum TypeCode : std::uint8_t {
  type_int = 0,
  type_uint = 1,
  type_float = 2,
  type_bfloat = 4,
  type_complex = 5,
  type_bool = 6,
  type_float8_e4m3fn = 10,  // since 1.1
  type_float8_e5m2 = 12,
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

/// Strides count elements; null means row-major.
struct DLTensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// In capsules named "dltensor".
struct Managed {
  DLTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

inline constexpr std::uint64_t flag_read_only = 1;
inline constexpr std::uint64_t flag_copied = 2;

/// In capsules named "dltensor_versioned"; of another major version only `version` and `deleter` can be relied on.
struct ManagedVersioned {
  struct {
    std::uint32_t major;
    std::uint32_t minor;
  } version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};

static_assert(sizeof(DLTensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);

inline constexpr const char* name = "dltensor";
inline constexpr const char* used_name = "used_dltensor";
inline constexpr const char* versioned_name = "dltensor_versioned";
inline constexpr const char* used_versioned_name = "used_dltensor_versioned";

}  // namespace hyalite::dlpack
