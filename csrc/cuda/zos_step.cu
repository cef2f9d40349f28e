#include <vector>

#include "cuda/launch.cuh"

namespace inputmeta::cuda {
namespace {

// Edges between captured launches can be told apart and replaced since CUDA 12.3; CUDA 13 dropped the suffixes.
#if CUDART_VERSION < 12030
#error "CUDA 12.3 or later"
#elif CUDART_VERSION >= 13000
#define INPUTMETA_CAPTURE_INFO cudaStreamGetCaptureInfo
#define INPUTMETA_SET_DEPENDENCIES cudaStreamUpdateCaptureDependencies
#else
#define INPUTMETA_CAPTURE_INFO cudaStreamGetCaptureInfo_v3
#define INPUTMETA_SET_DEPENDENCIES cudaStreamUpdateCaptureDependencies_v2
#endif

/// What the next launch on a stream that a graph captures depends on.
struct Dependencies {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<cudaGraphEdgeData> edges;

  void append(const Dependencies& more) {
    nodes.insert(nodes.end(), more.nodes.begin(), more.nodes.end());
    edges.insert(edges.end(), more.edges.begin(), more.edges.end());
  }
};

/// Makes launches that do not depend on each other siblings in the graph that captures their stream: each depends on
/// what was in front of the first, and what comes after join() on all of them. Without a capture it does nothing.
class Fork {
 public:
  explicit Fork(cudaStream_t stream) : stream_(stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    require_success(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    is_captured_ = status == cudaStreamCaptureStatusActive;
    if (is_captured_) before_ = current();
  }
  /// After a launch that was refused, what comes next in the graph depends on those before it, as on any stream.
  ~Fork() {
    if (!is_captured_ || is_joined_ || launched_.nodes.empty()) return;
    if (update(launched_) != cudaSuccess) cudaGetLastError();
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

  bool is_captured() const { return is_captured_; }

  /// After a launch: the next one does not depend on it.
  void next() {
    if (!is_captured_) return;
    launched_.append(current());
    set(before_);
  }

  /// After the last: what follows depends on all.
  void join() {
    is_joined_ = true;
    if (!is_captured_) return;
    launched_.append(current());
    set(launched_);
  }

 private:
  Dependencies current() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    require_success(INPUTMETA_CAPTURE_INFO(stream_, &status, nullptr, nullptr, &nodes, &edges, &count),
                    "cudaStreamGetCaptureInfo");
    Dependencies found = {{nodes, nodes + count}, std::vector<cudaGraphEdgeData>(count)};
    if (edges != nullptr) found.edges.assign(edges, edges + count);
    return found;
  }

  cudaError_t update(Dependencies& dependencies) const {
    return INPUTMETA_SET_DEPENDENCIES(stream_, dependencies.nodes.data(), dependencies.edges.data(),
                                      dependencies.nodes.size(), cudaStreamSetCaptureDependencies);
  }

  void set(Dependencies& dependencies) const {
    require_success(update(dependencies), "cudaStreamUpdateCaptureDependencies");
  }

  cudaStream_t stream_;
  bool is_captured_ = false;
  bool is_joined_ = false;
  Dependencies before_;
  Dependencies launched_;
};

}  // namespace

void launch_zos_step(const Queue& queue, std::span<const ZosMetadataArgs> metadata, const ZosTablesArgs& tables) {
  const DeviceGuard guard(queue.device);
  Fork fork(static_cast<cudaStream_t>(queue.stream));
  bool follows = false;
  for (const ZosMetadataArgs& args : metadata) {
    launch_zos_metadata(queue, args, follows);
    follows = !fork.is_captured();
    fork.next();
  }
  launch_zos_tables(queue, tables, follows);
  fork.join();
}

}  // namespace inputmeta::cuda
