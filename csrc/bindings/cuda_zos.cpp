#include "bindings/cuda_zos.h"

#include <algorithm>
#include <array>
#include <memory>
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

  /// Writes a step. `inputs`: the addresses of the extracted arrays in the order of the dataclass, 0 for none.
  void run(uintptr_t stream, const py::tuple& inputs, int64_t num_reqs, int64_t total_q, int64_t longest,
           int64_t table_cells) const {
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
    const auto* const ids = address_from<const int32_t>(inputs[7]);
    const auto* const ngrams = address_from<const int32_t>(inputs[8]);
    const py::gil_scoped_release release;
    launch({device_, reinterpret_cast<void*>(stream)}, arrays, ids, ngrams, total_q, longest, table_cells);
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

  void launch(const Queue& queue, const ZosInputs& arrays, const int32_t* ids, const int32_t* ngrams, int64_t total_q,
              int64_t longest, int64_t table_cells) const {
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
      args.copies.input_ids = ids;
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

/// Names of the gather's arrays, in the order in which their views come.
constexpr std::array kGatherArrays = {"fresh_input_ids", "prev_sampled", "prev_predict",
                                      "remap",           "seqlens_q",    "cu_seqlens_q"};

/// F-GATHER; cu_seqlens_q is an input, or with `sums` summed first.
void gather(int device, uintptr_t stream, const py::tuple& arrays, const py::tuple& out, bool sums) {
  std::vector<TensorView> views;
  for (const py::handle view : arrays) views.emplace_back(view.cast<py::tuple>());
  if (views.size() != kGatherArrays.size()) throw py::value_error("six arrays are needed");
  const TensorView& predict = views[2];
  const int64_t columns = predict.shape.size() == 2 ? predict.shape[1] : 0;
  const auto cells = [&](size_t k) { return views[k].int32_cells(kGatherArrays[k]); };
  const size_t rows = cells(0).size();
  const size_t sequences = cells(3).size();
  const auto target = TensorView(out).int32_cells("out");
  const bool shapes_agree = predict.int32_rows("prev_predict", columns).data() == predict.address &&
                            predict.shape[0] == static_cast<int64_t>(cells(1).size()) &&
                            cells(4).size() == sequences && cells(5).size() == sequences && target.size() == rows;
  if (!shapes_agree) throw py::value_error("the arrays of the gather do not have the same sequences or rows");
  if (std::max({rows, sequences, cells(1).size()}) > kInt32Max) throw py::value_error("sizes fit in int32");
  const auto n = static_cast<int64_t>(sequences);
  const cuda::GatherIdsArgs args = {
      .fresh_input_ids = cells(0).data(),
      .prev_sampled = cells(1).data(),
      .prev_predict = static_cast<const int32_t*>(predict.address),
      .remap = cells(3).data(),
      .seqlens_q = cells(4).data(),
      .cu_seqlens_q = cells(5).data(),
      .out = target.data(),
      .predict_columns = columns,
      .rows = static_cast<uint32_t>(rows),
      .previous = static_cast<uint32_t>(cells(1).size()),
      .tiles = cuda::plan_sequence_tiles(n, static_cast<int64_t>(rows), columns + 1)};
  const Queue queue = {device, reinterpret_cast<void*>(stream)};
  const py::gil_scoped_release release;
  if (sums) cuda::launch_cumsum(queue, args.seqlens_q, n, cells(5).data());
  cuda::launch_gather_ids(queue, args);
}

}  // namespace

void bind_cuda_zos(py::module_& module) {
  py::class_<ZosTarget>(module, "ZosTarget", "Buffers of ZOS decode on a device, ready for launches.")
      .def(py::init<const BoundConfig&, int, int64_t, const py::dict&>(), py::arg("config"), py::arg("device"),
           py::arg("columns"), py::arg("fields"))
      .def("run", &ZosTarget::run, py::arg("stream"), py::arg("inputs"), py::arg("num_reqs"), py::arg("total_q"),
           py::arg("longest"), py::arg("table_cells"));
  module.def("zos_gather", &gather, py::arg("device"), py::arg("stream"), py::arg("arrays"), py::arg("out"),
             py::arg("sums"));
}

}  // namespace inputmeta::bindings
