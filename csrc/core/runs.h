// The few shapes that every field is made of: constants, ramps, stairs, and rows that step by a constant. A formula's
// chapter cuts its rows into such runs, one division a run; the loops here have none and vectorise.
#pragma once

#include <array>
#include <cstdint>
#include <span>

// One build serves every x86-64 machine: the loader picks the widest version of a function (needs glibc's ifunc; the
// sanitizers' runtimes start too late for its resolvers).
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__)
#define INPUTMETA_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define INPUTMETA_CLONES
#endif

namespace inputmeta {

/// Largest value read as unsigned, so that a negative one is larger than all others; 0 for none. One pass that
/// vectorises: the preconditions ask for "all within [0, bound)" of long arrays.
uint32_t largest_unsigned(std::span<const int32_t> values);

/// out[k] = value for k < count.
void write_constant(int32_t* out, int64_t count, int32_t value);

/// out[k] = first + k * step.
void write_ramp(int32_t* out, int64_t count, int32_t first, int32_t step = 1);

/// out[k] = base + (numerator + k) // divisor; numerator >= 0, divisor >= 1.
void write_stairs(int32_t* out, int64_t count, int32_t base, int64_t numerator, int64_t divisor);

/// Row k of two cells: (first + k * step, (numerator + k) // divisor).
void write_offset_len(int32_t* out, int64_t count, int32_t first, int32_t step, int64_t numerator, int64_t divisor);

/// Row k of four cells: (blocks[k], 0, end, dst + k * end): segments of a load plan that take whole blocks.
void write_whole_segments(int32_t* out, int64_t count, const int32_t* blocks, int32_t end, int32_t dst);

using Quad = std::array<int32_t, 4>;

/// Row k of four cells: first + k * step, cell by cell.
void write_quads(int32_t* out, int64_t count, const Quad& first, const Quad& step);

/// out[k] = base + (first + k) % ring, in runs that end where the ring wraps; base + ring - 1 need not fit.
void write_ring(int32_t* out, int64_t count, int64_t base, int64_t first, int64_t ring);

/// Copies cells that nothing reads soon past the caches; fence_streams() once after the last of them.
void stream_cells(int32_t* out, const int32_t* cells, int64_t count);
void fence_streams();
/// Bytes from which on stream_cells was faster than std::copy_n where it was measured: a quarter of a 32 MiB last level
/// of cache.
inline constexpr int64_t kLeastStreamedBytes = int64_t{8} << 20;
/// Shorter rows are not worth it: of their first and last lines of cache a part alone is written.
inline constexpr int64_t kLeastStreamedCells = 256;

}  // namespace inputmeta
