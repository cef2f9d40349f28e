// The part of MessagePack that the protocol needs: nil, bool, integers, text, bytes, arrays, maps with text keys.
// A reader of untrusted bytes: it throws std::runtime_error, and allocates no more than a multiple of what it was given.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace msgpack {

using Bytes = std::vector<std::uint8_t>;

struct Value;
using Array = std::vector<Value>;
using Map = std::map<std::string, Value, std::less<>>;

struct Value {
    // Binary data is a view of the bytes that were read: they must outlive the value.
    std::variant<std::monostate, bool, std::int64_t, std::string, std::span<const std::uint8_t>, Array, Map> data;

    [[nodiscard]] bool is_nil() const { return std::holds_alternative<std::monostate>(data); }

    template <class T>
    [[nodiscard]] const T& as(const char* what) const {
        if (const T* held = std::get_if<T>(&data)) return *held;
        throw std::runtime_error(std::string("not ") + what);
    }
    [[nodiscard]] bool boolean() const { return as<bool>("a bool"); }
    [[nodiscard]] std::int64_t integer() const { return as<std::int64_t>("an integer"); }
    [[nodiscard]] const std::string& text() const { return as<std::string>("text"); }
    [[nodiscard]] std::span<const std::uint8_t> bytes() const {
        return as<std::span<const std::uint8_t>>("binary data");
    }
    [[nodiscard]] const Array& array() const { return as<Array>("an array"); }
    [[nodiscard]] const Map& map() const { return as<Map>("a map"); }

    [[nodiscard]] const Value& at(std::string_view key) const {
        const Map& entries = map();
        const auto found = entries.find(key);
        if (found == entries.end()) throw std::runtime_error("no key " + std::string(key));
        return found->second;
    }
};

class Reader {
  public:
    explicit Reader(std::span<const std::uint8_t> data) : data_(data) {}

    // The one value that the bytes hold.
    Value whole() {
        Value value = next(0);
        if (!data_.empty()) throw std::runtime_error("bytes behind the message");
        return value;
    }

  private:
    static constexpr int max_depth = 16;

    std::span<const std::uint8_t> take(std::size_t count) {
        if (count > data_.size()) throw std::runtime_error("the message is cut off");
        const auto front = data_.first(count);
        data_ = data_.subspan(count);
        return front;
    }

    std::uint64_t big_endian(std::size_t count) {
        std::uint64_t value = 0;
        for (const std::uint8_t byte : take(count)) value = value << 8 | byte;
        return value;
    }

    std::string text(std::size_t count) {
        const auto bytes = take(count);
        return {bytes.begin(), bytes.end()};
    }

    Array array(std::size_t count, int depth) {
        // Every element is a byte at least: a count beyond that is a lie, and nothing is reserved for it.
        if (count > data_.size()) throw std::runtime_error("the message is cut off");
        Array items;
        items.reserve(count);
        while (count-- > 0) items.push_back(next(depth));
        return items;
    }

    Map map(std::size_t count, int depth) {
        Map entries;
        while (count-- > 0) {
            std::string key = next(depth).text();
            if (!entries.emplace(std::move(key), next(depth)).second) throw std::runtime_error("a key stands twice");
        }
        return entries;
    }

    static std::int64_t unsigned_integer(std::uint64_t value) {
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            throw std::runtime_error("an integer beyond int64");
        return static_cast<std::int64_t>(value);
    }

    Value next(int depth) {
        if (depth > max_depth) throw std::runtime_error("nested too deep");
        const std::uint8_t head = take(1)[0];
        if (head <= 0x7F) return {std::int64_t{head}};
        if (head <= 0x8F) return {map(head & 0x0FU, depth + 1)};
        if (head <= 0x9F) return {array(head & 0x0FU, depth + 1)};
        if (head <= 0xBF) return {text(head & 0x1FU)};
        if (head >= 0xE0) return {std::int64_t{static_cast<std::int8_t>(head)}};
        switch (head) {
            case 0xC0: return {};
            case 0xC2: return {false};
            case 0xC3: return {true};
            case 0xC4: return {take(big_endian(1))};
            case 0xC5: return {take(big_endian(2))};
            case 0xC6: return {take(big_endian(4))};
            case 0xCC: return {unsigned_integer(big_endian(1))};
            case 0xCD: return {unsigned_integer(big_endian(2))};
            case 0xCE: return {unsigned_integer(big_endian(4))};
            case 0xCF: return {unsigned_integer(big_endian(8))};
            case 0xD0: return {std::int64_t{static_cast<std::int8_t>(big_endian(1))}};
            case 0xD1: return {std::int64_t{static_cast<std::int16_t>(big_endian(2))}};
            case 0xD2: return {std::int64_t{static_cast<std::int32_t>(big_endian(4))}};
            case 0xD3: return {static_cast<std::int64_t>(big_endian(8))};
            case 0xD9: return {text(big_endian(1))};
            case 0xDA: return {text(big_endian(2))};
            case 0xDB: return {text(big_endian(4))};
            case 0xDC: return {array(big_endian(2), depth + 1)};
            case 0xDD: return {array(big_endian(4), depth + 1)};
            case 0xDE: return {map(big_endian(2), depth + 1)};
            case 0xDF: return {map(big_endian(4), depth + 1)};
            default: throw std::runtime_error("a type of MessagePack that the protocol has not");
        }
    }

    std::span<const std::uint8_t> data_;
};

// Appends values; the longest form of each is always right.
class Writer {
  public:
    Bytes out;

    Writer& nil() { return head(0xC0); }
    Writer& boolean(bool value) { return head(value ? 0xC3 : 0xC2); }
    Writer& integer(std::int64_t value) { return head(0xD3).big_endian(static_cast<std::uint64_t>(value), 8); }
    Writer& array(std::size_t count) { return head(0xDD).big_endian(count, 4); }
    Writer& map(std::size_t count) { return head(0xDF).big_endian(count, 4); }
    Writer& text(std::string_view value) {
        head(0xDB).big_endian(value.size(), 4);
        out.insert(out.end(), value.begin(), value.end());
        return *this;
    }
    Writer& bytes(std::span<const std::uint8_t> value) {
        head(0xC6).big_endian(value.size(), 4);
        out.insert(out.end(), value.begin(), value.end());
        return *this;
    }

  private:
    Writer& head(std::uint8_t byte) {
        out.push_back(byte);
        return *this;
    }
    Writer& big_endian(std::uint64_t value, int count) {
        while (count-- > 0) out.push_back(static_cast<std::uint8_t>(value >> (8 * count)));
        return *this;
    }
};

}  // namespace msgpack
