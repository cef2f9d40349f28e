// A program that speaks the protocol of conformance/PROTOCOL.md: decode steps, built by decode.cpp.
//
//     c++ -std=c++20 -O2 -o decode_builder main.cpp decode.cpp
//     inputmeta subject check --subject-command ./decode_builder
//     inputmeta fuzz --subject-command ./decode_builder
#include <bit>
#include <cstdio>
#include <cstring>
#include <exception>

#include "decode.hpp"
#include "msgpack.hpp"

static_assert(std::endian::native == std::endian::little, "arrays are little-endian on the wire");

namespace {

using msgpack::Bytes;
using msgpack::Value;
using msgpack::Writer;

constexpr std::size_t max_frame = std::size_t{256} << 20;

// ---- Frames ----

bool read_exactly(void* to, std::size_t count) { return std::fread(to, 1, count, stdin) == count; }

// The body of the next frame; false at the end of the stream.
bool read_frame(Bytes& body) {
    std::uint32_t size = 0;
    if (!read_exactly(&size, sizeof size) || size > max_frame) return false;
    body.resize(size);
    return read_exactly(body.data(), size);
}

void write_frame(const Bytes& body) {
    const auto size = static_cast<std::uint32_t>(body.size());
    std::fwrite(&size, 1, sizeof size, stdout);
    std::fwrite(body.data(), 1, body.size(), stdout);
    std::fflush(stdout);
}

// ---- From messages ----

struct Buffer {
    bool is_bool;
    Bytes data;
    [[nodiscard]] std::size_t cells() const { return is_bool ? data.size() : data.size() / 4; }
};

struct View {
    std::size_t buffer, offset;
    std::vector<std::int64_t> shape;
};

struct Batch {
    std::int64_t id;
    std::string path;
    Config config;
    std::vector<Sequence> sequences;
    std::optional<std::int64_t> max_num_blocks;
    std::set<std::string> expand;
    bool in_place = false;
    std::vector<Buffer> buffers;
    std::map<std::string, View> views;
};

void only_keys(const Value& value, std::initializer_list<std::string_view> known) {
    for (const auto& [key, item] : value.map()) {
        bool found = false;
        for (const std::string_view name : known) found = found || name == key;
        if (!found) throw std::runtime_error("unknown key " + key);
    }
}

std::vector<std::int64_t> integers(const Value& value) {
    only_keys(value, {"dtype", "shape", "data"});
    const auto bytes = value.at("data").bytes();
    const auto& shape = value.at("shape").array();
    if (value.at("dtype").text() != "int64" || shape.size() != 1 || shape[0].integer() < 0 ||
        bytes.size() % 8 != 0 || static_cast<std::size_t>(shape[0].integer()) != bytes.size() / 8)
        throw std::runtime_error("not an int64 array of one dimension");
    std::vector<std::int64_t> cells(bytes.size() / 8);
    if (!bytes.empty()) std::memcpy(cells.data(), bytes.data(), bytes.size());
    return cells;
}

std::optional<std::int64_t> optional_integer(const Value& value) {
    return value.is_nil() ? std::nullopt : std::optional(value.integer());
}

Config config_of(const Value& value) {
    only_keys(value, {"block_size", "window_size", "swa_block_size", "max_model_len", "dense_ratios", "sparse_ratios",
                      "max_ngram_size", "pad_token", "image_sentinel", "lookup_table", "cp_size", "cp_rank",
                      "yoco_prefill_keep_tokens", "yoco_mode", "force_load_balance"});
    Config config;
    config.block_size = value.at("block_size").integer();
    config.window_size = value.at("window_size").integer();
    config.swa_block_size = value.at("swa_block_size").integer();
    config.max_model_len = value.at("max_model_len").integer();
    config.max_ngram_size = value.at("max_ngram_size").integer();
    config.pad_token = value.at("pad_token").integer();
    config.cp_size = value.at("cp_size").integer();
    config.cp_rank = value.at("cp_rank").integer();
    config.dense_ratios = integers(value.at("dense_ratios"));
    config.sparse_ratios = integers(value.at("sparse_ratios"));
    config.lookup_table = integers(value.at("lookup_table"));
    config.image_sentinel = optional_integer(value.at("image_sentinel"));
    config.force_load_balance = value.at("force_load_balance").boolean();
    return config;
}

Sequence sequence_of(const Value& value) {
    only_keys(value, {"seqlen_q", "seqlen_k", "block_table", "state_id", "is_placeholder", "swa_valid_start",
                      "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens", "data_len"});
    Sequence sequence;
    sequence.seqlen_q = value.at("seqlen_q").integer();
    sequence.seqlen_k = value.at("seqlen_k").integer();
    sequence.state_id = value.at("state_id").integer();
    sequence.swa_valid_start = value.at("swa_valid_start").integer();
    sequence.data_len = value.at("data_len").integer();
    sequence.is_placeholder = value.at("is_placeholder").boolean();
    sequence.block_table = integers(value.at("block_table"));
    sequence.token_ids = integers(value.at("token_ids"));
    sequence.draft_tokens = integers(value.at("draft_tokens"));
    sequence.compressed_tokens = integers(value.at("compressed_tokens"));
    sequence.recent_tokens = integers(value.at("recent_tokens"));
    return sequence;
}

// Where a field lies in its buffer; throws if that is not inside.
View view_of(const Value& value, const std::vector<Buffer>& buffers) {
    only_keys(value, {"buffer", "offset", "shape"});
    const std::int64_t index = value.at("buffer").integer(), offset = value.at("offset").integer();
    if (index < 0 || static_cast<std::size_t>(index) >= buffers.size()) throw std::runtime_error("no such buffer");
    const auto room = static_cast<std::int64_t>(buffers[static_cast<std::size_t>(index)].cells());
    View view{static_cast<std::size_t>(index), 0, {}};
    std::int64_t cells = 1;
    for (const Value& size : value.at("shape").array()) {
        view.shape.push_back(size.integer());
        if (view.shape.back() < 0 || view.shape.back() > room) throw std::runtime_error("a view outside its buffer");
        cells *= view.shape.back();  // room is below 2^28, and so is cells: no overflow
        if (cells > room) throw std::runtime_error("a view outside its buffer");
    }
    if (offset < 0 || offset > room - cells) throw std::runtime_error("a view outside its buffer");
    view.offset = static_cast<std::size_t>(offset);
    return view;
}

void read_out(const Value& value, Batch& batch) {
    only_keys(value, {"buffers", "views"});
    batch.in_place = true;
    for (const Value& buffer : value.at("buffers").array()) {
        const auto bytes = buffer.at("data").bytes();
        const std::string& dtype = buffer.at("dtype").text();
        if (dtype != "bool" && (dtype != "int32" || bytes.size() % 4 != 0))
            throw std::runtime_error("a buffer is not of int32 or bool");
        batch.buffers.push_back({dtype == "bool", Bytes(bytes.begin(), bytes.end())});
    }
    for (const auto& [key, item] : value.at("views").map()) batch.views.emplace(key, view_of(item, batch.buffers));
}

Batch batch_of(const Value& message) {
    only_keys(message, {"type", "id", "path", "config", "sequences", "gather", "max_num_blocks", "expand", "out"});
    Batch batch;
    batch.id = message.at("id").integer();
    batch.path = message.at("path").text();
    if (batch.path != "prompt" && batch.path != "decode" && batch.path != "decode_zos")
        throw std::runtime_error("no path " + batch.path);
    batch.config = config_of(message.at("config"));
    for (const Value& sequence : message.at("sequences").array()) batch.sequences.push_back(sequence_of(sequence));
    batch.max_num_blocks = optional_integer(message.at("max_num_blocks"));
    for (const Value& name : message.at("expand").array()) batch.expand.insert(name.text());
    if (!message.at("out").is_nil()) read_out(message.at("out"), batch);
    return batch;
}

// ---- To messages ----

Bytes hello() {
    Writer w;
    w.map(5).text("type").text("hello").text("protocol").integer(1).text("name").text("decode_builder");
    w.text("version").text("1.0").text("capabilities").map(5);
    w.text("paths").array(1).text("decode");
    w.text("fields").array(decode_fields().size());
    for (const std::string& name : decode_fields()) w.text(name);
    w.text("devices").array(1).text("cpu");
    w.text("in_place").boolean(true);
    w.text("neutral_tails").boolean(true);
    return w.out;
}

Bytes error(std::int64_t id, const char* kind, std::string message) {
    for (char& c : message)
        if (c < ' ' || c > '~') c = '?';  // text is UTF-8, and what a message quotes may be anything
    Writer w;
    w.map(4).text("type").text("error").text("id").integer(id).text("kind").text(kind);
    w.text("message").text(message);
    return w.out;
}

void write_array(Writer& w, bool is_bool, const std::vector<std::int64_t>& shape, std::span<const std::uint8_t> data) {
    w.map(3).text("dtype").text(is_bool ? "bool" : "int32").text("shape").array(shape.size());
    for (const std::int64_t size : shape) w.integer(size);
    w.text("data").bytes(data);
}

Bytes cell_bytes(const Field& field) {
    if (field.is_bool) return {field.cells.begin(), field.cells.end()};
    Bytes bytes(field.cells.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), field.cells.data(), bytes.size());
    return bytes;
}

void write_buffers(Writer& w, const Batch& batch) {
    w.text("buffers");
    if (!batch.in_place) {
        w.nil();
        return;
    }
    w.array(batch.buffers.size());
    for (const Buffer& buffer : batch.buffers)
        write_array(w, buffer.is_bool, {static_cast<std::int64_t>(buffer.cells())}, buffer.data);
}

Bytes reject(const Batch& batch, const Refusal& refusal) {
    Writer w;
    w.map(7).text("type").text("reject").text("id").integer(batch.id).text("condition").text(refusal.condition);
    w.text("sequence");
    refusal.sequence ? w.integer(*refusal.sequence) : w.nil();
    w.text("field").text(refusal.field).text("message").text(refusal.message);
    write_buffers(w, batch);
    return w.out;
}

// P-OUT: a view for each field, of its shape; a query-aligned one may have more rows.
void check_views(const Batch& batch, const std::vector<Field>& fields) {
    for (const Field& field : fields) {
        const auto found = batch.views.find(field.key);
        if (found == batch.views.end()) throw Refusal{"P-OUT", {}, field.key, "P-OUT: " + field.key + " is missing"};
        std::vector<std::int64_t> shape = found->second.shape;
        if (field.row_a_query && !shape.empty() && shape[0] > field.shape[0]) shape[0] = field.shape[0];
        if (shape != field.shape || batch.buffers[found->second.buffer].is_bool != field.is_bool)
            throw Refusal{"P-OUT", {}, field.key, "P-OUT: " + field.key + " is not of the step's shape"};
    }
}

void fill(Batch& batch, Field& field) {
    const View& view = batch.views.at(field.key);
    std::size_t cells = 1;
    for (const std::int64_t size : view.shape) cells *= static_cast<std::size_t>(size);
    field.cells.resize(cells, field.neutral);  // rows past total_q are neutral
    const Bytes bytes = cell_bytes(field);
    const std::size_t width = field.is_bool ? 1 : 4;
    std::memcpy(batch.buffers[view.buffer].data.data() + view.offset * width, bytes.data(), bytes.size());
}

Bytes build(Batch& batch) {
    if (batch.path != "decode") return error(batch.id, "exception", "path " + batch.path + " is not claimed");
    Metadata metadata;
    try {
        metadata = build_decode(batch.config, batch.sequences, batch.max_num_blocks, batch.expand);
        if (batch.in_place) check_views(batch, metadata.fields);
    } catch (const Refusal& refusal) {
        return reject(batch, refusal);
    }
    if (batch.in_place)
        for (Field& field : metadata.fields) fill(batch, field);
    Writer w;
    w.map(4).text("type").text("result").text("id").integer(batch.id);
    w.text("fields").map(4 + (batch.in_place ? 0 : metadata.fields.size()));
    w.text("num_reqs").integer(metadata.num_reqs).text("total_q").integer(metadata.total_q);
    w.text("max_num_blocks").integer(metadata.max_num_blocks).text("is_prompt").boolean(false);
    if (!batch.in_place)
        for (const Field& field : metadata.fields) {
            w.text(field.key);
            write_array(w, field.is_bool, field.shape, cell_bytes(field));
        }
    write_buffers(w, batch);
    return w.out;
}

// The answer to one message; empty to `bye`.
Bytes answer(std::span<const std::uint8_t> body) {
    const Value message = msgpack::Reader(body).whole();
    const std::string& type = message.at("type").text();
    if (type == "bye") return {};
    if (type == "hello") {
        if (message.at("protocol").integer() != 1) throw std::runtime_error("this program speaks protocol 1");
        return hello();
    }
    if (type != "build") throw std::runtime_error("no message " + type);
    Batch batch = batch_of(message);
    return build(batch);
}

}  // namespace

int main() {
    Bytes body;
    while (read_frame(body)) {
        Bytes reply;
        try {
            reply = answer(body);
            if (reply.empty()) return 0;
        } catch (const std::exception& problem) {
            reply = error(-1, "message", problem.what());
        }
        write_frame(reply);
    }
    return 0;
}
