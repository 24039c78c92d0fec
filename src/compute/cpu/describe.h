/// What the CPU tells the recorder of an output and of a kernel: only what the code that did the work has counted.
#pragma once

#include "compute/backend.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/loops.h"

namespace hyalite::cpu {

// Each ends a step, whose clock has stopped.

void describe_output(Span& span, const TensorImpl& out, bool in_place);
/// The kernel's step, with what the loop says of itself and nothing else.
void describe_kernel(Recorder& rec, const Validated& v, const LoopReport& r, const Outputs& o);
/// Of a fused group: the names of its ops, how many of its kernels were generated, and what the loop says of itself.
/// Of matrix products among them, what the library did.
void describe_fused(Recorder& rec, const std::string& ops, int generated, const LoopReport& r,
                    const GemmReport* product = nullptr);
/// The same where a library computed.
void describe_product(Recorder& rec, const Validated& v, const GemmReport& r);

}  // namespace hyalite::cpu
