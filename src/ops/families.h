/// The families of operations, in the order of the one list: `name` is the header ops/name.h, `List` the list at its
/// end.
#pragma once

// Kernels, texts and entries of the table are compiled a family at a time, so that a touched formula compiles its own.
// CMake reads these rows. The elementwise families stand first.
#define HYALITE_FAMILIES(ELEMENTWISE, OTHER) \
  ELEMENTWISE(arithmetic, Arithmetic)        \
  ELEMENTWISE(functions, Functions)          \
  ELEMENTWISE(comparison, Comparisons)       \
  ELEMENTWISE(gradient_parts, GradientParts) \
  OTHER(reduce, Reductions)                  \
  OTHER(movement, Movement)                  \
  OTHER(rearrange, Rearrangement)            \
  OTHER(linear, Linear)                      \
  OTHER(indexing, Indexing)                  \
  OTHER(creation, Creation)

/// For the rows that are not meant.
#define HYALITE_NO_FAMILY(name, List)
