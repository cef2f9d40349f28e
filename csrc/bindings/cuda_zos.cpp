#include "bindings/cuda_zos.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/metadata.h"
#include "bindings/tensor_view.h"
#include "core/expand.h"
#include "core/ratios.h"
#include "core/zos_decode.h"
#include "cuda/launch.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

using cuda::Queue;
using cuda::ZosMetadata;
using cuda::ZosStepArgs;
using cuda::ZosWide;

template <class Cell>
Cell* address_from(py::handle number) {
  return reinterpret_cast<Cell*>(number.cast<uintptr_t>());
}

/// F-GATHER's arrays. `sources`: the addresses of fresh_cu_seqlens_q, remap, prev_sampled_token_ids and
/// prev_predict_token_ids, 0 for none, then m and the columns of the last; empty for a step of fixed length.
ZosTokenSources token_sources(const int32_t* fresh_input_ids, int64_t fresh_rows, const py::tuple& sources) {
  ZosTokenSources tokens;
  tokens.fresh_input_ids = fresh_input_ids;
  tokens.fresh_rows = fresh_rows;
  if (sources.empty()) return tokens;
  if (sources.size() != 6) throw py::value_error("six sources are needed");
  tokens.fresh_cu_seqlens_q = address_from<const int32_t>(sources[0]);
  tokens.remap = address_from<const int32_t>(sources[1]);
  tokens.prev_sampled_token_ids = address_from<const int32_t>(sources[2]);
  tokens.prev_predict_token_ids = address_from<const int32_t>(sources[3]);
  tokens.previous = sources[4].cast<int64_t>();
  tokens.predict_columns = sources[5].cast<int64_t>();
  return tokens;
}

/// Buffers of ZOS decode on a device, with all that a launch needs and no step changes.
class ZosTarget {
 public:
  /// `fields`: address and cells from one bucket to the next (0 without buckets) by name; `expansions`: addresses of
  /// kv_swa_index and of kv_ca_index.n and kv_ca_index_len.n by key, where there are buffers for them. All checked by
  /// Python.
  ZosTarget(const BoundConfig& config, int device, int64_t columns, const py::dict& fields, const py::dict& expansions)
      : device_(device) {
    const Config& view = config.config;
    const ZosConstants constants(view, Ratios(view), columns);
    first_.metadata = metadata_of(view, constants.params, fields);
    tables_ = {.columns = columns, .out = address_from<int32_t>(item(fields, "block_tables")[0])};
    window_ = {.kind = cuda::WideField::window, .columns = view.window_size, .out = address_or_null(expansions, "kv_swa_index")};
    for (const ZosBucket& bucket : constants.buckets) buckets_.push_back({bucket, dense_of(view, bucket, expansions)});
  }

  /// Writes a step. `inputs`: the addresses of the extracted arrays in the order of the dataclass, 0 for none; `sources`:
  /// as token_sources takes them; `has_window`, `has_dense`: which expansions it has.
  void run(uintptr_t stream, const py::tuple& inputs, const py::tuple& sources, int64_t num_reqs, int64_t total_q,
           int64_t longest, int64_t table_cells, bool has_window, bool has_dense) const {
    if (inputs.size() != 9) throw py::value_error("nine arrays are needed");
    if (num_reqs < 0 || num_reqs > kInt32Max || total_q < 0 || total_q > kInt32Max || longest < 0 || table_cells < 0) {
      throw py::value_error("sizes of a step are not negative and fit in int32");
    }
    ZosStepArgs args = first_;
    args.sequences.inputs = {.num_reqs = num_reqs,
                             .seqlens_q = address_from<const int32_t>(inputs[0]),
                             .seqlens_k = address_from<const int32_t>(inputs[1]),
                             .cu_seqlens_q = address_from<const int32_t>(inputs[2]),
                             .state_ids = address_from<const int32_t>(inputs[3]),
                             .is_placeholder = address_from<const bool>(inputs[4]),
                             .block_tables_offsets = address_from<const int64_t>(inputs[5]),
                             .block_tables = address_from<const int32_t>(inputs[6])};
    args.sequences.table_cells = table_cells;
    args.sequences.total_q = static_cast<uint32_t>(total_q);
    args.metadata.copies.tokens = token_sources(address_from<const int32_t>(inputs[7]), total_q, sources);
    args.metadata.copies.ngram_token_ids = address_from<const int32_t>(inputs[8]);
    if (total_q > 0) args.add(tables_);
    if (has_window) args.add(present(window_));
    const py::gil_scoped_release release;
    launch({device_, reinterpret_cast<void*>(stream)}, args, longest, has_dense);
  }

 private:
  struct DenseBucket {
    ZosBucket bucket;
    ZosWide wide;
  };

  static py::tuple item(const py::dict& fields, const char* name) {
    if (!fields.contains(name)) throw py::value_error(std::string(name) + " is missing");
    return fields[name].cast<py::tuple>();
  }

  static int32_t* address_or_null(const py::dict& expansions, const std::string& key) {
    return expansions.contains(key.c_str()) ? address_from<int32_t>(expansions[key.c_str()]) : nullptr;
  }

  static const ZosWide& present(const ZosWide& wide) {
    if (wide.out == nullptr) throw std::invalid_argument("there is no buffer for an expansion");
    return wide;
  }

  static ZosMetadata metadata_of(const Config& config, const ZosParams& params, const py::dict& fields) {
    ZosMetadata metadata;
    metadata.params = params;
    for (size_t k = 0; k < kZosFieldCount; ++k) {
      const FieldDeclaration& field = declaration_of(kZosFields.at[k]);
      if (field.bucket != Bucket::plain && !fields.contains(field.name)) continue;  // no ratio of it
      const py::tuple place = item(fields, field.name);
      metadata.outputs.places[k] = {address_from<void>(place[0]), place[1].cast<int64_t>()};
    }
    metadata.copies.out_cu_seqlens_q = address_from<int32_t>(item(fields, "cu_seqlens_q")[0]);
    metadata.copies.out_input_ids = address_from<int32_t>(item(fields, "input_ids")[0]);
    metadata.copies.ngram_columns = std::max<int64_t>(0, config.max_ngram_size);
    metadata.copies.pad_token = static_cast<int32_t>(config.pad_token);
    if (metadata.copies.ngram_columns > 0) {
      metadata.copies.out_ngram_token_ids = address_from<int32_t>(item(fields, "ngram_token_ids")[0]);
    }
    return metadata;
  }

  /// The expansion of a ratio; without `out` where it is not dense or has no buffer.
  static ZosWide dense_of(const Config& config, const ZosBucket& bucket, const py::dict& expansions) {
    if (bucket.dense < 0) return {};
    const int64_t ratio = Ratios(config).dense[static_cast<size_t>(bucket.dense)].value();
    const std::string name = std::to_string(ratio);
    return {.kind = cuda::WideField::dense,
            .columns = dense_index_width(config.max_model_len, ratio),
            .out = address_or_null(expansions, "kv_ca_index." + name),
            .lens = address_or_null(expansions, "kv_ca_index_len." + name),
            .ratio = bucket.ratio};
  }

  /// As many launches as the ratios take; `args` is the first of them but for its ratios.
  void launch(const Queue& queue, ZosStepArgs args, int64_t longest, bool has_dense) const {
    size_t next = 0;
    do {
      for (; next < buckets_.size() && args.metadata.buckets_count < cuda::kRatiosAtOnce; ++next) {
        const DenseBucket& one = buckets_[next];
        args.metadata.buckets[args.metadata.buckets_count++] = one.bucket;
        if (has_dense && one.bucket.dense >= 0) args.add(present(one.wide));
      }
      args.plan(longest);
      cuda::launch_zos_step(queue, args);
      args.metadata.has_rows_item = false;
      args.metadata.buckets_count = args.wides_count = 0;
    } while (next < buckets_.size());
  }

  int device_;
  ZosStepArgs first_;
  ZosWide tables_;
  ZosWide window_;
  std::vector<DenseBucket> buckets_;
};

/// F-GATHER of the rows of `fresh` into `out`; `lengths`: addresses of seqlens_q and cu_seqlens_q, [num_reqs].
void gather(int device, uintptr_t stream, const py::tuple& fresh, const py::tuple& sources, const py::tuple& lengths,
            int64_t num_reqs, int64_t max_seqlen_q, const py::tuple& out, bool has_tail) {
  const auto source = TensorView(fresh).int32_cells("fresh_input_ids");
  const auto target = TensorView(out).int32_cells("out");
  if (target.size() != source.size()) throw py::value_error("out has the rows of fresh_input_ids");
  const auto rows = static_cast<int64_t>(source.size());
  if (num_reqs < 0 || std::max({rows, num_reqs}) > kInt32Max || max_seqlen_q < 0 || lengths.size() != 2) {
    throw py::value_error("sizes are not negative and fit in int32");
  }
  const cuda::GatherIdsArgs args = {.sources = token_sources(source.data(), rows, sources),
                                    .seqlens_q = address_from<const int32_t>(lengths[0]),
                                    .cu_seqlens_q = address_from<const int32_t>(lengths[1]),
                                    .out = target.data(),
                                    .rows = static_cast<uint32_t>(rows),
                                    .max_seqlen_q = static_cast<uint32_t>(std::min<int64_t>(max_seqlen_q, kInt32Max)),
                                    .has_tail = has_tail,
                                    .tiles = cuda::plan_sequence_tiles(num_reqs, rows, max_seqlen_q)};
  if (args.sources.fresh_cu_seqlens_q == nullptr) throw py::value_error("fresh_cu_seqlens_q is needed");
  const py::gil_scoped_release release;
  cuda::launch_gather_ids({device, reinterpret_cast<void*>(stream)}, args);
}

/// F-VARLEN. `arrays`: the addresses of ZosVarlen in its order, 0 for none; `outputs`: those of seqlens_k and
/// cu_seqlens_q.
void varlen(int device, uintptr_t stream, const py::tuple& arrays, int64_t num_reqs, int64_t previous,
            const py::tuple& outputs) {
  if (arrays.size() != 6 || outputs.size() != 2) throw py::value_error("six arrays and two outputs are needed");
  if (num_reqs < 0 || num_reqs > kInt32Max || previous < 0) throw py::value_error("sizes fit in int32");
  const auto at = [&](size_t k) { return address_from<const int32_t>(arrays[k]); };
  const cuda::ShortenArgs args = {.varlen = {.num_reqs = num_reqs,
                                             .seqlens_q = at(0),
                                             .seqlens_k = at(1),
                                             .fresh_cu_seqlens_q = at(2),
                                             .remap = at(3),
                                             .previous = previous,
                                             .prev_seqlens_q = at(4),
                                             .prev_num_accepted_tokens = at(5)},
                                  .seqlens_k = address_from<int32_t>(outputs[0])};
  auto* const sums = address_from<int32_t>(outputs[1]);
  const Queue queue = {device, reinterpret_cast<void*>(stream)};
  const py::gil_scoped_release release;
  cuda::launch_cumsum(queue, args.varlen.seqlens_q, num_reqs, sums);
  cuda::launch_shorten(queue, args);
}

}  // namespace

void bind_cuda_zos(py::module_& module) {
  py::class_<ZosTarget>(module, "ZosTarget", "Buffers of ZOS decode on a device, ready for launches.")
      .def(py::init<const BoundConfig&, int, int64_t, const py::dict&, const py::dict&>(), py::arg("config"),
           py::arg("device"), py::arg("columns"), py::arg("fields"), py::arg("expansions"))
      .def("run", &ZosTarget::run, py::arg("stream"), py::arg("inputs"), py::arg("sources"), py::arg("num_reqs"),
           py::arg("total_q"), py::arg("longest"), py::arg("table_cells"), py::arg("has_window"), py::arg("has_dense"));
  module.def("zos_gather", &gather, py::arg("device"), py::arg("stream"), py::arg("fresh"), py::arg("sources"),
             py::arg("lengths"), py::arg("num_reqs"), py::arg("max_seqlen_q"), py::arg("out"), py::arg("has_tail"));
  module.def("zos_varlen", &varlen, py::arg("device"), py::arg("stream"), py::arg("arrays"), py::arg("num_reqs"),
             py::arg("previous"), py::arg("outputs"));
}

}  // namespace inputmeta::bindings
