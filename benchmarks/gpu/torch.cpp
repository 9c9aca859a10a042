// PyTorch's caching allocator, called as an operator calls it but by nothing
// else, so that a few ns are seen. Compiled where it runs, against that PyTorch.
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <ctime>
#include <thread>

static double cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static double pairs(unsigned n) {
  double begin = cpu();
  for (unsigned i = 0; i < n; i++)
    c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc(512u << i % 8));
  return (cpu() - begin) / n / 2;
}

// ns of CPU time an event (an alloc or a free), on this thread, or on one that
// Python does not know.
extern "C" double torch_burst(unsigned n, int other_thread) {
  if (!other_thread)
    return pairs(n);
  double ns = 0;
  std::thread([&] {
    pairs(64); // its first event is not what is measured
    ns = pairs(n);
  }).join();
  return ns;
}
