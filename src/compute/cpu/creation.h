/// What the CPU does for ops without operands: one function each, which fills the output.
#pragma once

#include "ops/op_info.h"

namespace hyalite::cpu {

void leave_empty(const Call& c, TensorImpl& out);
void fill_full(const Call& c, TensorImpl& out);
void fill_range(const Call& c, TensorImpl& out);
void fill_linspace(const Call& c, TensorImpl& out);
void fill_eye(const Call& c, TensorImpl& out);

}  // namespace hyalite::cpu
