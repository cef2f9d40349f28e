// A program that speaks the protocol of conformance/PROTOCOL.md: decode steps, built by decode.cpp.
//
//     pip install nlohmann-json
//     json=$(python -c 'import nlohmann_json as j; print(j.get_include())')
//     c++ -std=c++20 -O2 -I "$json" -o decode_builder main.cpp decode.cpp
//     inputmeta subject check --subject-command ./decode_builder
//     inputmeta fuzz --subject-command ./decode_builder

// Headers only. A compiler that does not find them shows this line:
#include <nlohmann/json.hpp>  // missing? `pip install nlohmann-json`, or `apt install nlohmann-json3-dev`

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>

#include "decode.hpp"

static_assert(std::endian::native == std::endian::little, "arrays are little-endian on the wire");

namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

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

// nlohmann/json converts between types when asked for a value; these refuse what is of another.
const Json::object_t& map(const Json& value) { return value.get_ref<const Json::object_t&>(); }
const Json::array_t& array(const Json& value) { return value.get_ref<const Json::array_t&>(); }
const std::string& text(const Json& value) { return value.get_ref<const std::string&>(); }
bool boolean(const Json& value) { return value.get_ref<const bool&>(); }

std::int64_t integer(const Json& value) {
    if (!value.is_number_integer()) throw std::runtime_error("not an integer");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
        throw std::runtime_error("an integer beyond int64");
    return value.get<std::int64_t>();
}

void only_keys(const Json& value, std::initializer_list<std::string_view> known) {
    for (const auto& [key, item] : map(value)) {
        bool found = false;
        for (const std::string_view name : known) found = found || name == key;
        if (!found) throw std::runtime_error("unknown key " + key);
    }
}

// ---- Shared memory ----

// The file that a batch names, mapped while it is built. Arrays of the answer go behind `results`.
class SharedMemory {
  public:
    explicit SharedMemory(const Json& value) {
        only_keys(value, {"path", "size", "results"});
        const std::int64_t size = integer(value.at("size")), results = integer(value.at("results"));
        if (size <= 0 || results < 0 || results > size) throw std::runtime_error("shared memory of no size");
        size_ = static_cast<std::size_t>(size);
        end_ = static_cast<std::size_t>(results);
        const int file = open(text(value.at("path")).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        struct stat found {};
        const bool fits = file >= 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size >= size;
        void* at = fits ? mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
        if (file >= 0) close(file);
        if (at == MAP_FAILED) throw std::runtime_error("shared memory that cannot be mapped, or is too short");
        bytes_ = static_cast<std::uint8_t*>(at);
    }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory() { munmap(bytes_, size_); }

    [[nodiscard]] Bytes read(std::int64_t offset, std::size_t count) const {
        if (offset < 0 || static_cast<std::size_t>(offset) > size_ || count > size_ - static_cast<std::size_t>(offset))
            throw std::runtime_error("an array outside the shared memory");
        const std::uint8_t* begin = bytes_ + offset;
        return {begin, begin + count};
    }

    // Where the bytes were put; nothing if there is no room for them.
    std::optional<std::size_t> write(const Bytes& bytes) {
        if (bytes.size() > size_ - end_) return std::nullopt;
        if (!bytes.empty()) std::memcpy(bytes_ + end_, bytes.data(), bytes.size());
        const std::size_t begin = end_;
        end_ += bytes.size();
        return begin;
    }

  private:
    std::uint8_t* bytes_;
    std::size_t size_, end_;
};

using Memory = std::unique_ptr<SharedMemory>;  // null: the batch came in a frame

std::size_t cell_size(const std::string& dtype) {
    if (dtype == "int64") return 8;
    if (dtype == "int32") return 4;
    if (dtype == "bool") return 1;
    throw std::runtime_error("arrays are of int64, int32 or bool");
}

// The cells of an array of one dimension, from the frame or the shared memory.
Bytes bytes_of(const Json& value, const Memory& memory) {
    only_keys(value, {"dtype", "shape", "data"});
    const auto& shape = array(value.at("shape"));
    if (shape.size() != 1 || integer(shape[0]) < 0 || integer(shape[0]) > std::int64_t{1} << 40)
        throw std::runtime_error("not an array of one dimension");
    const std::size_t size = static_cast<std::size_t>(integer(shape[0])) * cell_size(text(value.at("dtype")));
    const Json& data = value.at("data");
    if (data.is_number()) {
        if (!memory) throw std::runtime_error("shared memory that is not named");
        return memory->read(integer(data), size);
    }
    const Bytes& bytes = data.get_binary();
    if (bytes.size() != size) throw std::runtime_error("an array whose bytes are not what its shape says");
    return bytes;
}

// ---- Batches ----

struct Buffer {
    bool is_bool;
    Bytes data;
    [[nodiscard]] std::size_t cells() const { return is_bool ? data.size() : data.size() / 4; }
};

struct View {
    std::size_t buffer, offset;
    std::vector<std::int64_t> shape;
    bool read_only;
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
    Memory memory;
};

template <typename Cell>
std::vector<std::int64_t> widened(const Bytes& bytes) {
    std::vector<Cell> cells(bytes.size() / sizeof(Cell));
    if (!bytes.empty()) std::memcpy(cells.data(), bytes.data(), bytes.size());
    return {cells.begin(), cells.end()};
}

std::vector<std::int64_t> integers(const Json& value, const Memory& memory) {
    const Bytes bytes = bytes_of(value, memory);
    const std::string& dtype = text(value.at("dtype"));
    if (dtype == "bool") throw std::runtime_error("not an int64 or int32 array");
    return dtype == "int64" ? widened<std::int64_t>(bytes) : widened<std::int32_t>(bytes);
}

std::optional<std::int64_t> optional_integer(const Json& value) {
    return value.is_null() ? std::nullopt : std::optional(integer(value));
}

Config config_of(const Json& value, const Memory& memory) {
    only_keys(value, {"block_size", "window_size", "swa_block_size", "max_model_len", "dense_ratios", "sparse_ratios",
                      "max_ngram_size", "pad_token", "image_sentinel", "lookup_table", "cp_size", "cp_rank",
                      "yoco_prefill_keep_tokens", "yoco_mode", "force_load_balance"});
    Config config;
    config.block_size = integer(value.at("block_size"));
    config.window_size = integer(value.at("window_size"));
    config.swa_block_size = integer(value.at("swa_block_size"));
    config.max_model_len = integer(value.at("max_model_len"));
    config.max_ngram_size = integer(value.at("max_ngram_size"));
    config.pad_token = integer(value.at("pad_token"));
    config.cp_size = integer(value.at("cp_size"));
    config.cp_rank = integer(value.at("cp_rank"));
    config.dense_ratios = integers(value.at("dense_ratios"), memory);
    config.sparse_ratios = integers(value.at("sparse_ratios"), memory);
    config.lookup_table = integers(value.at("lookup_table"), memory);
    config.image_sentinel = optional_integer(value.at("image_sentinel"));
    config.force_load_balance = boolean(value.at("force_load_balance"));
    return config;
}

Sequence sequence_of(const Json& value, const Memory& memory) {
    only_keys(value, {"seqlen_q", "seqlen_k", "block_table", "state_id", "is_placeholder", "swa_valid_start",
                      "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens", "data_len"});
    Sequence sequence;
    sequence.seqlen_q = integer(value.at("seqlen_q"));
    sequence.seqlen_k = integer(value.at("seqlen_k"));
    sequence.state_id = integer(value.at("state_id"));
    sequence.swa_valid_start = integer(value.at("swa_valid_start"));
    sequence.data_len = integer(value.at("data_len"));
    sequence.is_placeholder = boolean(value.at("is_placeholder"));
    sequence.block_table = integers(value.at("block_table"), memory);
    sequence.token_ids = integers(value.at("token_ids"), memory);
    sequence.draft_tokens = integers(value.at("draft_tokens"), memory);
    sequence.compressed_tokens = integers(value.at("compressed_tokens"), memory);
    sequence.recent_tokens = integers(value.at("recent_tokens"), memory);
    return sequence;
}

// Where a field lies in its buffer; throws if that is not inside.
View view_of(const Json& value, const std::vector<Buffer>& buffers) {
    only_keys(value, {"buffer", "offset", "shape", "read_only"});
    const std::int64_t index = integer(value.at("buffer")), offset = integer(value.at("offset"));
    if (index < 0 || static_cast<std::size_t>(index) >= buffers.size()) throw std::runtime_error("no such buffer");
    const auto room = static_cast<std::int64_t>(buffers[static_cast<std::size_t>(index)].cells());
    const bool read_only = value.contains("read_only") && boolean(value.at("read_only"));
    View view{static_cast<std::size_t>(index), 0, {}, read_only};
    std::int64_t cells = 1;
    for (const Json& size : array(value.at("shape"))) {
        view.shape.push_back(integer(size));
        if (view.shape.back() < 0 || view.shape.back() > room) throw std::runtime_error("a view outside its buffer");
        if (view.shape.back() != 0 && cells > room / view.shape.back())
            throw std::runtime_error("a view outside its buffer");
        cells *= view.shape.back();
    }
    if (offset < 0 || offset > room - cells) throw std::runtime_error("a view outside its buffer");
    view.offset = static_cast<std::size_t>(offset);
    return view;
}

void read_out(const Json& value, Batch& batch) {
    only_keys(value, {"buffers", "views"});
    batch.in_place = true;
    for (const Json& buffer : array(value.at("buffers"))) {
        const std::string& dtype = text(buffer.at("dtype"));
        if (dtype == "int64") throw std::runtime_error("a buffer is not of int32 or bool");
        batch.buffers.push_back({dtype == "bool", bytes_of(buffer, batch.memory)});
    }
    for (const auto& [key, item] : map(value.at("views"))) batch.views.emplace(key, view_of(item, batch.buffers));
}

Batch batch_of(const Json& message) {
    only_keys(message, {"type", "id", "path", "config", "sequences", "gather", "max_num_blocks", "expand", "out",
                        "memory"});
    Batch batch;
    if (message.contains("memory")) batch.memory = std::make_unique<SharedMemory>(message.at("memory"));
    batch.id = integer(message.at("id"));
    batch.path = text(message.at("path"));
    if (batch.path != "prompt" && batch.path != "decode" && batch.path != "decode_zos")
        throw std::runtime_error("no path " + batch.path);
    batch.config = config_of(message.at("config"), batch.memory);
    for (const Json& sequence : array(message.at("sequences")))
        batch.sequences.push_back(sequence_of(sequence, batch.memory));
    batch.max_num_blocks = optional_integer(message.at("max_num_blocks"));
    for (const Json& name : array(message.at("expand"))) batch.expand.insert(text(name));
    if (!message.at("out").is_null()) read_out(message.at("out"), batch);
    return batch;
}

// ---- To messages ----

Json hello() {
    return {{"type", "hello"},
            {"protocol", 1},
            {"name", "decode_builder"},
            {"version", "1.0"},
            {"int32_arrays", true},
            {"shared_memory", std::int64_t{1} << 20},
            {"capabilities",
             {{"paths", Json::array({"decode"})},
              {"fields", decode_fields()},
              {"devices", Json::array({"cpu"})},
              {"in_place", true},
              {"neutral_tails", true},
              {"read_only", true}}}};
}

Json error(std::int64_t id, const char* kind, std::string message) {
    for (char& c : message)
        if (c < ' ' || c > '~') c = '?';  // text is UTF-8, and what a message quotes may be anything
    return {{"type", "error"}, {"id", id}, {"kind", kind}, {"message", message}};
}

// In the shared memory while there is room, else in the frame.
Json array_of(bool is_bool, const std::vector<std::int64_t>& shape, Bytes data, const Memory& memory) {
    const auto offset = memory ? memory->write(data) : std::nullopt;
    return {{"dtype", is_bool ? "bool" : "int32"},
            {"shape", shape},
            {"data", offset ? Json(*offset) : Json::binary(std::move(data))}};
}

Bytes cell_bytes(const Field& field) {
    if (field.is_bool) return {field.cells.begin(), field.cells.end()};
    Bytes bytes(field.cells.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), field.cells.data(), bytes.size());
    return bytes;
}

Json buffers_of(Batch& batch) {
    if (!batch.in_place) return nullptr;
    Json buffers = Json::array();
    for (Buffer& buffer : batch.buffers) {
        const auto cells = static_cast<std::int64_t>(buffer.cells());
        buffers.push_back(array_of(buffer.is_bool, {cells}, std::move(buffer.data), batch.memory));
    }
    return buffers;
}

Json reject(Batch& batch, const Refusal& refusal) {
    return {{"type", "reject"},
            {"id", batch.id},
            {"condition", refusal.condition},
            {"sequence", refusal.sequence ? Json(*refusal.sequence) : Json(nullptr)},
            {"field", refusal.field},
            {"message", refusal.message},
            {"buffers", buffers_of(batch)}};
}

// P-OUT: a view for each field, of its dtype and shape, not read-only; a query-aligned one may have more rows.
void check_views(const Batch& batch, const std::vector<Field>& fields) {
    for (const Field& field : fields) {
        const auto found = batch.views.find(field.key);
        if (found == batch.views.end()) throw Refusal{"P-OUT", {}, field.key, "P-OUT: " + field.key + " is missing"};
        std::vector<std::int64_t> shape = found->second.shape;
        if (field.row_a_query && !shape.empty() && shape[0] > field.shape[0]) shape[0] = field.shape[0];
        if (shape != field.shape || batch.buffers[found->second.buffer].is_bool != field.is_bool)
            throw Refusal{"P-OUT", {}, field.key, "P-OUT: " + field.key + " is not of the step's dtype and shape"};
        if (found->second.read_only) throw Refusal{"P-OUT", {}, field.key, "P-OUT: " + field.key + " is read-only"};
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

Json build(Batch& batch) {
    if (batch.path != "decode") return error(batch.id, "exception", "path " + batch.path + " is not claimed");
    Metadata metadata;
    try {
        metadata = build_decode(batch.config, batch.sequences, batch.max_num_blocks, batch.expand);
        if (batch.in_place) check_views(batch, metadata.fields);
    } catch (const Refusal& refusal) {
        return reject(batch, refusal);
    }
    Json fields = {{"num_reqs", metadata.num_reqs},
                   {"total_q", metadata.total_q},
                   {"max_num_blocks", metadata.max_num_blocks},
                   {"is_prompt", false}};
    for (Field& field : metadata.fields) {
        if (batch.in_place)
            fill(batch, field);
        else
            fields[field.key] = array_of(field.is_bool, field.shape, cell_bytes(field), batch.memory);
    }
    return {{"type", "result"}, {"id", batch.id}, {"fields", std::move(fields)}, {"buffers", buffers_of(batch)}};
}

// The answer to one message; null to `bye`.
Json answer(const Bytes& body) {
    const Json message = Json::from_msgpack(body);
    const std::string& type = text(message.at("type"));
    if (type == "bye") return nullptr;
    if (type == "hello") {
        if (integer(message.at("protocol")) != 1) throw std::runtime_error("this program speaks protocol 1");
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
        Json reply;
        try {
            reply = answer(body);
            if (reply.is_null()) return 0;
        } catch (const std::exception& problem) {
            reply = error(-1, "message", problem.what());
        }
        write_frame(Json::to_msgpack(reply));
    }
    return 0;
}
