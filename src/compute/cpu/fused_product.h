/// Matrix products with the elementwise calls that go on with them.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

class Generator;

/// Of a program whose pass is a product. With a generator, runs of its other steps become generated kernels.
std::unique_ptr<lazy::FusedKernel> fuse_product(const lazy::Program& program, Generator* generator);

}  // namespace hyalite::cpu
