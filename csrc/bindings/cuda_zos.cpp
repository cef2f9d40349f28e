#include "bindings/cuda_zos.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "bindings/metadata.h"
#include "bindings/tensor_view.h"
#include "core/ratios.h"
#include "core/zos_decode.h"
#include "cuda/launch.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

using cuda::Queue;
using cuda::ZosMetadataArgs;
using cuda::ZosTablesArgs;

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
  /// `fields`: address and cells from one bucket to the next (0 without buckets) by name, checked by Python.
  ZosTarget(const BoundConfig& config, int device, int64_t columns, const py::dict& fields) : device_(device) {
    const ZosConstants constants(config.config, Ratios(config.config), columns);
    metadata_.push_back(rows_launch(config.config, constants.params, fields));
    for (const ZosBucket& bucket : constants.buckets) {
      if (metadata_.back().buckets_count == cuda::kRatiosAtOnce) {
        metadata_.push_back(metadata_.front());
        metadata_.back().has_rows_item = false;
        metadata_.back().buckets_count = 0;
      }
      ZosMetadataArgs& last = metadata_.back();
      last.buckets[last.buckets_count++] = bucket;
    }
    tables_.out = address_from<int32_t>(item(fields, "block_tables")[0]);
    tables_.columns = columns;
  }

  /// Writes a step. `inputs`: the addresses of the extracted arrays in the order of the dataclass, 0 for none; `sources`:
  /// as token_sources takes them.
  void run(uintptr_t stream, const py::tuple& inputs, const py::tuple& sources, int64_t num_reqs, int64_t total_q,
           int64_t longest, int64_t table_cells) const {
    if (inputs.size() != 9) throw py::value_error("nine arrays are needed");
    if (num_reqs < 0 || num_reqs > kInt32Max || total_q < 0 || total_q > kInt32Max || longest < 0 || table_cells < 0) {
      throw py::value_error("sizes of a step are not negative and fit in int32");
    }
    const ZosInputs arrays = {.num_reqs = num_reqs,
                              .seqlens_q = address_from<const int32_t>(inputs[0]),
                              .seqlens_k = address_from<const int32_t>(inputs[1]),
                              .cu_seqlens_q = address_from<const int32_t>(inputs[2]),
                              .state_ids = address_from<const int32_t>(inputs[3]),
                              .is_placeholder = address_from<const bool>(inputs[4]),
                              .block_tables_offsets = address_from<const int64_t>(inputs[5]),
                              .block_tables = address_from<const int32_t>(inputs[6])};
    const ZosTokenSources tokens = token_sources(address_from<const int32_t>(inputs[7]), total_q, sources);
    const auto* const ngrams = address_from<const int32_t>(inputs[8]);
    const py::gil_scoped_release release;
    launch({device_, reinterpret_cast<void*>(stream)}, arrays, tokens, ngrams, total_q, longest, table_cells);
  }

 private:
  static py::tuple item(const py::dict& fields, const char* name) {
    if (!fields.contains(name)) throw py::value_error(std::string(name) + " is missing");
    return fields[name].cast<py::tuple>();
  }

  static ZosMetadataArgs rows_launch(const Config& config, const ZosParams& params, const py::dict& fields) {
    ZosMetadataArgs args;
    args.params = params;
    for (size_t k = 0; k < kZosFieldCount; ++k) {
      const FieldDeclaration& field = declaration_of(kZosFields.at[k]);
      if (field.bucket != Bucket::plain && !fields.contains(field.name)) continue;  // no ratio of it
      const py::tuple place = item(fields, field.name);
      args.outputs.places[k] = {address_from<void>(place[0]), place[1].cast<int64_t>()};
    }
    args.copies.out_cu_seqlens_q = address_from<int32_t>(item(fields, "cu_seqlens_q")[0]);
    args.copies.out_input_ids = address_from<int32_t>(item(fields, "input_ids")[0]);
    args.copies.ngram_columns = std::max<int64_t>(0, config.max_ngram_size);
    args.copies.pad_token = static_cast<int32_t>(config.pad_token);
    if (args.copies.ngram_columns > 0) {
      args.copies.out_ngram_token_ids = address_from<int32_t>(item(fields, "ngram_token_ids")[0]);
    }
    return args;
  }

  void launch(const Queue& queue, const ZosInputs& arrays, const ZosTokenSources& tokens, const int32_t* ngrams,
              int64_t total_q, int64_t longest, int64_t table_cells) const {
    const cuda::SequenceTiles tiles = cuda::plan_sequence_tiles(arrays.num_reqs, total_q, longest);
    ZosTablesArgs tables = tables_;
    tables.inputs = arrays;
    tables.table_cells = table_cells;
    tables.total_q = static_cast<uint32_t>(total_q);
    if (total_q > 0) cuda::plan_zos_tables(tables, longest);
#if INPUTMETA_PLANTED(launch_race)
    tables.inputs.cu_seqlens_q = metadata_.front().copies.out_cu_seqlens_q;
#endif
    std::vector<ZosMetadataArgs> metadata = metadata_;
    for (ZosMetadataArgs& args : metadata) {
      args.inputs = arrays;
      args.table_cells = table_cells;
      args.copies.tokens = tokens;
      args.copies.ngram_token_ids = ngrams;
      args.total_q = static_cast<uint32_t>(total_q);
      args.tiles = tiles;
    }
    cuda::launch_zos_step(queue, metadata, tables);
  }

  int device_;
  std::vector<ZosMetadataArgs> metadata_;
  ZosTablesArgs tables_;
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
      .def(py::init<const BoundConfig&, int, int64_t, const py::dict&>(), py::arg("config"), py::arg("device"),
           py::arg("columns"), py::arg("fields"))
      .def("run", &ZosTarget::run, py::arg("stream"), py::arg("inputs"), py::arg("sources"), py::arg("num_reqs"),
           py::arg("total_q"), py::arg("longest"), py::arg("table_cells"));
  module.def("zos_gather", &gather, py::arg("device"), py::arg("stream"), py::arg("fresh"), py::arg("sources"),
             py::arg("lengths"), py::arg("num_reqs"), py::arg("max_seqlen_q"), py::arg("out"), py::arg("has_tail"));
  module.def("zos_varlen", &varlen, py::arg("device"), py::arg("stream"), py::arg("arrays"), py::arg("num_reqs"),
             py::arg("previous"), py::arg("outputs"));
}

}  // namespace inputmeta::bindings
