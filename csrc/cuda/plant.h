// Faults that tests plant in the kernels, to show that the suite or a sanitizer catches each. One is chosen when the
// engine is compiled (CMake: -DINPUTMETA_PLANT=missing_bound); without a choice no line of them is in the build.
//
//   missing_bound  block tables: the columns of a table are not bounded, so that cells behind it are read and written
//   launch_race    wide fields: read the row bounds that other blocks of the same launch write, while they do
//   stale_tail     expansions: cells right of a row's length keep what the last step left there
//   stack_stride   metadata: the buckets of a stack lie total_q rows apart, not as far as in the captured buffer
//   int_product    flat cell of a row: row * columns as an int, which wraps in buffers past 2^31 cells
//   lost_carry     cumsum: a round of the scan forgets the sum of the rounds before
//   early_begin    expansions, gathers: read what the kernel in front of them is still writing
//   stale_rows     metadata: rows past a shorter sum keep what the last step left there
//   moved_rows     metadata: fresh tokens and n-grams are read at the shorter step's rows, not where the host laid them
#pragma once

#if defined(INPUTMETA_PLANT)
#define INPUTMETA_PLANT_missing_bound 1
#define INPUTMETA_PLANT_launch_race 2
#define INPUTMETA_PLANT_stale_tail 3
#define INPUTMETA_PLANT_stack_stride 4
#define INPUTMETA_PLANT_int_product 5
#define INPUTMETA_PLANT_lost_carry 6
#define INPUTMETA_PLANT_early_begin 7
#define INPUTMETA_PLANT_stale_rows 8
#define INPUTMETA_PLANT_moved_rows 9
#define INPUTMETA_PLANT_PASTE(name) INPUTMETA_PLANT_##name
#define INPUTMETA_PLANT_NUMBER(name) INPUTMETA_PLANT_PASTE(name)
#if INPUTMETA_PLANT_NUMBER(INPUTMETA_PLANT) == 0
#error "INPUTMETA_PLANT is not one of the faults of cuda/plant.h"
#endif
#define INPUTMETA_PLANTED(fault) (INPUTMETA_PLANT_NUMBER(INPUTMETA_PLANT) == INPUTMETA_PLANT_##fault)
#else
#define INPUTMETA_PLANTED(fault) 0
#endif
