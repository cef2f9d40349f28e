// How kept rows travel from the full mirror to the consumer's (F-CONTRIB): every rank contributes the kept rows of its
// full mirror, padded to one length; all contributions are gathered; each rank picks the rows of its compact mirror.
#pragma once

#include "core/batch.h"
#include "core/mirror.h"
#include "core/plan.h"

namespace inputmeta {

/// Sets contrib_pad_len and boundary_runs. Cost: the blocks that have kept rows, not the ranks.
void plan_contributions(const Config& config, std::span<const Sequence> sequences, const MirrorGroup& group,
                        ConsumerPlan& plan);

/// yoco_cp_contrib_index and yoco_cp_boundary_index.
void fill_contributions(const Batch& batch, const Outputs& outputs, const MirrorGroup& group);

}  // namespace inputmeta
