// The launch itself: device, stream, attributes, and the error that CUDA reports.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "cuda/launch.h"
#include "cuda/plant.h"

namespace inputmeta::cuda {

/// Throws LaunchError. CUDA keeps the error of a call for whoever asks next, which would be torch: it is taken back.
inline void require_success(cudaError_t error, const char* kernel) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw LaunchError(std::string(kernel) + ": " + cudaGetErrorString(error));
}

/// Makes a device the thread's own while it lives: a stream is launched on from its device.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    require_success(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device) require_success(cudaSetDevice(device), "cudaSetDevice");
    is_changed_ = before_ != device;
  }
  ~DeviceGuard() {
    if (is_changed_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool is_changed_ = false;
};

/// Whether a launch may begin before the one in front of it has ended (compute capability 9.0 and later).
inline bool can_overlap(int device) {
  int major = 0;
  require_success(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 9;
}

/// Launches kernel(args) unless the grid is empty. The kernel begins with begin_after_previous: it may be launched once
/// all blocks of the launch before it have let it.
template <class Args>
void launch(const char* name, void (*kernel)(Args), uint32_t blocks, uint32_t threads, const Queue& queue,
            const Args& args) {
  if (blocks == 0) return;
  const DeviceGuard guard(queue.device);
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(queue.stream);
  config.attrs = &overlap;
  config.numAttrs = can_overlap(queue.device) ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args);
  const cudaError_t last = cudaGetLastError();
  require_success(error != cudaSuccess ? error : last, name);
}

/// At the begin of every kernel: the next one may be launched, and what was in front of this one has been written. Of the
/// time that a launch takes only the launch itself is saved.
__device__ inline void begin_after_previous() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#if !INPUTMETA_PLANTED(early_begin)
  cudaGridDependencySynchronize();
#endif
#endif
}

}  // namespace inputmeta::cuda
