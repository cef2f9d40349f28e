// Writes every field of a plan. Nothing is allocated and nothing can fail: the plan has checked it all.
#pragma once

#include "core/plan.h"

namespace inputmeta {

/// `outputs` has an address for every spec of batch.plan.fields(batch.config), each large enough and none shared.
void fill(const Batch& batch, const Outputs& outputs);

}  // namespace inputmeta
