#include "bindings/metadata.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/sealed.h"
#include "core/ratios.h"

namespace py = pybind11;

namespace inputmeta::bindings {
namespace {

constexpr const char* kYocoModes[] = {"off", "mask", "compact"};

YocoMode yoco_mode_from(const std::string& name) {
  for (int mode = 0; mode < 3; ++mode) {
    if (name == kYocoModes[mode]) return static_cast<YocoMode>(mode);
  }
  throw py::value_error("yoco_mode is \"off\", \"mask\" or \"compact\", not \"" + name + "\"");
}

std::vector<int64_t> integers(const std::vector<Scalar>& scalars) {
  std::vector<int64_t> result;
  result.reserve(scalars.size());
  for (const Scalar scalar : scalars) result.push_back(scalar.value);
  return result;
}

std::shared_ptr<BoundConfig> make_config(Scalar block_size, const std::vector<Scalar>& dense_ratios,
                                         const std::vector<Scalar>& sparse_ratios, Scalar window_size,
                                         Scalar swa_block_size, Scalar max_model_len, Scalar max_ngram_size,
                                         Scalar pad_token, std::optional<Scalar> image_sentinel, HostArray lookup_table,
                                         Scalar cp_size, Scalar cp_rank, Scalar yoco_prefill_keep_tokens,
                                         const std::string& yoco_mode, bool force_load_balance) {
  auto bound = std::make_shared<BoundConfig>();
  bound->config = Config{.block_size = block_size.value,
                         .dense_ratios = integers(dense_ratios),
                         .sparse_ratios = integers(sparse_ratios),
                         .window_size = window_size.value,
                         .swa_block_size = swa_block_size.value,
                         .max_model_len = max_model_len.value,
                         .max_ngram_size = max_ngram_size.value,
                         .pad_token = pad_token.value,
                         .image_sentinel = std::nullopt,
                         .lookup_table = {},
                         .cp_size = cp_size.value,
                         .cp_rank = cp_rank.value,
                         .yoco_prefill_keep_tokens = yoco_prefill_keep_tokens.value,
                         .yoco_mode = yoco_mode_from(yoco_mode),
                         .force_load_balance = force_load_balance};
  if (image_sentinel) bound->config.image_sentinel = image_sentinel->value;
  bound->lookup_table = std::move(lookup_table);
  bound->lookup_table.own();  // immutable, as all of it
  return bound;
}

std::shared_ptr<BoundSequence> make_sequence(Scalar seqlen_q, Scalar seqlen_k, HostArray block_table, Scalar state_id,
                                             bool is_placeholder, Scalar swa_valid_start, HostArray token_ids,
                                             HostArray draft_tokens, HostArray compressed_tokens,
                                             HostArray recent_tokens, Scalar data_len) {
  auto bound = std::make_shared<BoundSequence>();
  bound->scalars.seqlen_q = seqlen_q.value;
  bound->scalars.seqlen_k = seqlen_k.value;
  bound->scalars.state_id = state_id.value;
  bound->scalars.is_placeholder = is_placeholder;
  bound->scalars.swa_valid_start = swa_valid_start.value;
  bound->scalars.data_len = data_len.value;
  bound->block_table = std::move(block_table);
  bound->token_ids = std::move(token_ids);
  bound->draft_tokens = std::move(draft_tokens);
  bound->compressed_tokens = std::move(compressed_tokens);
  bound->recent_tokens = std::move(recent_tokens);
  return bound;
}

template <auto Member>
auto config_scalar() {
  return [](const BoundConfig& bound) { return bound.config.*Member; };
}

template <class Class>
void bind_config_fields(Class& type) {
  type.def_property_readonly("block_size", config_scalar<&Config::block_size>())
      .def_property_readonly("dense_ratios", config_scalar<&Config::dense_ratios>())
      .def_property_readonly("sparse_ratios", config_scalar<&Config::sparse_ratios>())
      .def_property_readonly("ca_ratios", [](const BoundConfig& bound) { return union_of_ratios(bound.config); })
      .def_property_readonly("window_size", config_scalar<&Config::window_size>())
      .def_property_readonly("swa_block_size", config_scalar<&Config::swa_block_size>())
      .def_property_readonly("max_model_len", config_scalar<&Config::max_model_len>())
      .def_property_readonly("max_ngram_size", config_scalar<&Config::max_ngram_size>())
      .def_property_readonly("pad_token", config_scalar<&Config::pad_token>())
      .def_property_readonly("image_sentinel", config_scalar<&Config::image_sentinel>())
      .def_property_readonly("lookup_table", [](const BoundConfig& bound) { return bound.lookup_table.to_list(); })
      .def_property_readonly("cp_size", config_scalar<&Config::cp_size>())
      .def_property_readonly("cp_rank", config_scalar<&Config::cp_rank>())
      .def_property_readonly("yoco_prefill_keep_tokens", config_scalar<&Config::yoco_prefill_keep_tokens>())
      .def_property_readonly("yoco_mode",
                             [](const BoundConfig& bound) {
                               return kYocoModes[static_cast<int>(bound.config.yoco_mode)];
                             })
      .def_property_readonly("force_load_balance", config_scalar<&Config::force_load_balance>());
}

template <int64_t SequenceScalars::*Member, class Class>
void bind_scalar(Class& type, const char* name) {
  type.def_property(
      name, [](const BoundSequence& bound) { return bound.scalars.*Member; },
      [](BoundSequence& bound, Scalar value) {
        bound.require_unborrowed();
        bound.scalars.*Member = value.value;
      });
}

template <HostArray BoundSequence::*Member, class Class>
void bind_array(Class& type, const char* name) {
  type.def_property(
      name, [](const BoundSequence& bound) { return (bound.*Member).to_list(); },
      [](BoundSequence& bound, HostArray value) {
        bound.require_unborrowed();
        std::swap(bound.*Member, value);  // the old one is released when the new one is there
      });
}

template <HostArray BoundSequence::*Member, class Class>
void bind_append(Class& type, const char* name, const char* doc) {
  type.def(
      name,
      [](BoundSequence& bound, const HostArray& values) {
        bound.require_unborrowed();  // once the values are there: to make them may run Python code
        (bound.*Member).append(values);
      },
      py::arg("values"), doc);
}

template <class Class>
void bind_sequence_fields(Class& type) {
  bind_scalar<&SequenceScalars::seqlen_q>(type, "seqlen_q");
  bind_scalar<&SequenceScalars::seqlen_k>(type, "seqlen_k");
  bind_scalar<&SequenceScalars::state_id>(type, "state_id");
  bind_scalar<&SequenceScalars::swa_valid_start>(type, "swa_valid_start");
  bind_scalar<&SequenceScalars::data_len>(type, "data_len");
  type.def_property(
      "is_placeholder", [](const BoundSequence& bound) { return bound.scalars.is_placeholder; },
      [](BoundSequence& bound, bool value) {
        bound.require_unborrowed();
        bound.scalars.is_placeholder = value;
      });
  bind_array<&BoundSequence::block_table>(type, "block_table");
  bind_array<&BoundSequence::token_ids>(type, "token_ids");
  bind_array<&BoundSequence::draft_tokens>(type, "draft_tokens");
  bind_array<&BoundSequence::compressed_tokens>(type, "compressed_tokens");
  bind_array<&BoundSequence::recent_tokens>(type, "recent_tokens");
  bind_append<&BoundSequence::token_ids>(type, "append_tokens", "Appends to token_ids; cost O(added), once a borrowed array is copied.");
  bind_append<&BoundSequence::block_table>(type, "append_blocks", "Appends to block_table; cost O(added), once a borrowed array is copied.");
}

std::string repr_of(const BoundSequence& bound) {
  const SequenceScalars& sequence = bound.scalars;
  return "SequenceMetadata(seqlen_q=" + std::to_string(sequence.seqlen_q) +
         ", seqlen_k=" + std::to_string(sequence.seqlen_k) + ", state_id=" + std::to_string(sequence.state_id) +
         (sequence.is_placeholder ? ", is_placeholder=True" : "") +
         ", block_table=<" + std::to_string(bound.block_table.size()) + " blocks>)";
}

}  // namespace

Config BoundConfig::view() const {
  Config lent = config;
  lent.lookup_table = lookup_table.view();
  return lent;
}

Sequence BoundSequence::view() const {
  return {scalars,
          block_table.view_with_largest(),
          token_ids.view(),
          draft_tokens.view(),
          compressed_tokens.view(),
          recent_tokens.view_with_largest()};
}

void BoundSequence::require_unborrowed() const {
  if (borrowers == 0) return;
  PyErr_SetString(PyExc_RuntimeError, "the sequence is being read by a prepare call: change it when that has returned");
  throw py::error_already_set();
}

void bind_metadata(py::module_& module) {
  const py::tuple none;
  const std::vector<Scalar> no_ratios;
  py::class_<BoundConfig, std::shared_ptr<BoundConfig>> config(
      module, "MetadataConfig", "What is fixed for an engine (specification, section 1); immutable.");
  config.def(py::init(&make_config), py::kw_only(), py::arg("block_size"), py::arg("dense_ratios") = no_ratios,
             py::arg("sparse_ratios") = no_ratios, py::arg("window_size"), py::arg("swa_block_size"),
             py::arg("max_model_len"), py::arg("max_ngram_size") = Scalar{0}, py::arg("pad_token") = Scalar{0},
             py::arg("image_sentinel") = py::none(), py::arg("lookup_table") = none, py::arg("cp_size") = Scalar{1},
             py::arg("cp_rank") = Scalar{0}, py::arg("yoco_prefill_keep_tokens") = Scalar{0},
             py::arg("yoco_mode") = "off", py::arg("force_load_balance") = false);
  bind_config_fields(config);
  leave_nothing_dangling<BoundConfig>();

  py::class_<BoundSequence, std::shared_ptr<BoundSequence>> sequence(
      module, "SequenceMetadata", "One sequence of a step (specification, section 1). A contiguous int32 buffer (numpy, a torch "
      "tensor in host memory, array.array) is borrowed: it is kept, cannot be resized meanwhile, and what it holds is read "
      "by each prepare call anew. Other arrays are copied.");
  sequence.def(py::init(&make_sequence), py::kw_only(), py::arg("seqlen_q"), py::arg("seqlen_k"),
               py::arg("block_table") = none, py::arg("state_id") = Scalar{0}, py::arg("is_placeholder") = false,
               py::arg("swa_valid_start") = Scalar{0}, py::arg("token_ids") = none, py::arg("draft_tokens") = none,
               py::arg("compressed_tokens") = none, py::arg("recent_tokens") = none, py::arg("data_len") = Scalar{0});
  bind_sequence_fields(sequence);
  leave_nothing_dangling<BoundSequence>();
  sequence.def("__repr__", &repr_of);
}

}  // namespace inputmeta::bindings
