// Cells of int32 in fours: what one load or store of 16 bytes moves.
#pragma once

#include <cstdint>

#include "core/exact_divisor.h"
#include "cuda/plant.h"

// A loop that mostly turns once is left as it is: to unroll it, the compiler would divide for the number of its turns.
#if defined(__CUDA_ARCH__)
#define INPUTMETA_UNROLL _Pragma("unroll")
#define INPUTMETA_ROLLED _Pragma("unroll 1")
#else
#define INPUTMETA_UNROLL
#define INPUTMETA_ROLLED
#endif

namespace inputmeta::cuda {

struct alignas(16) Cells4 {
  int32_t cell[4];
};

INPUTMETA_ANYWHERE inline bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(Cells4) == 0;
}

INPUTMETA_ANYWHERE inline Cells4 load4(const int32_t* cells) {
  if (is_aligned(cells)) return *reinterpret_cast<const Cells4*>(cells);
  return {{cells[0], cells[1], cells[2], cells[3]}};
}

/// `out` is aligned, and in a device's global memory when a kernel calls this.
INPUTMETA_ANYWHERE inline void store4(int32_t* out, const Cells4& cells) {
#if defined(__CUDA_ARCH__)
  // The compiler splits the store of a struct whose cells come from different places.
  asm volatile("st.global.v4.s32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(out)), "r"(cells.cell[0]), "r"(cells.cell[1]), "r"(cells.cell[2]),
                 "r"(cells.cell[3])
               : "memory");
#else
  *reinterpret_cast<Cells4*>(out) = cells;
#endif
}

/// A unit of one cell or four.
INPUTMETA_ANYWHERE inline void store_unit(int32_t* out, int32_t cell) { *out = cell; }
INPUTMETA_ANYWHERE inline void store_unit(int32_t* out, const Cells4& cells) { store4(out, cells); }

template <class Unit>
INPUTMETA_ANYWHERE Unit load_unit(const int32_t* cells) {
  if constexpr (sizeof(Unit) == sizeof(int32_t)) {
    return *cells;
  } else {
    return load4(cells);
  }
}

/// First cell of a row in a buffer of rows of `columns` cells.
INPUTMETA_ANYWHERE inline int64_t flat_cell(int64_t row, int64_t columns) {
#if INPUTMETA_PLANTED(int_product)
  return static_cast<int32_t>(static_cast<uint32_t>(row) * static_cast<uint32_t>(columns));
#else
  return row * columns;
#endif
}

/// Copies cells as one of `threads` threads: by fours where both ends are aligned, which a pack and a buffer mostly are.
INPUTMETA_ANYWHERE inline void copy_cells(const int32_t* source, int32_t* out, int64_t count, int64_t thread,
                                          int64_t threads) {
  int64_t in_fours = 0;
  if (is_aligned(source) && is_aligned(out)) {
    in_fours = count / 4 * 4;
INPUTMETA_ROLLED
    for (int64_t k = 4 * thread; k < in_fours; k += 4 * threads) store4(out + k, load4(source + k));
  }
INPUTMETA_ROLLED
  for (int64_t k = in_fours + thread; k < count; k += threads) out[k] = source[k];
}

}  // namespace inputmeta::cuda
