// The program that runs launches: reads them from a file, one item a line, and runs them one after another.
//
//   options CHECKED SEED WORKERS GRAIN
//   buffer PATH OFFSET BYTES ELEMENT DEFINED   a file that holds the data from an offset on, mapped and written in place
//   kernel NAME GRID(3) BLOCK(3) CLUSTER SHARED
//   pointer BUFFER BYTES                       an argument: buffer number, offset
//   int VALUE | long VALUE | float VALUE
//   map BUFFER OFFSET ELEMENT RANK SWIZZLE EXTENT.. BOX.. STRIDE..      innermost first; strides in bytes, of all but it
//   go
//
// Standard output has "START number" and "END number seconds accesses" for each launch, and at the end "WRITTEN buffer" for
// each buffer that some kernel could write. Exit code: 0, or 3 after faults.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "state.h"

extern "C" const emu::Entry* const __start_emu_entries[];  // the linker's names for the ends of the section (entry.h)
extern "C" const emu::Entry* const __stop_emu_entries[];

namespace emu {
void forget_host_threads();

namespace {
constexpr int MOST_ARGUMENTS = 64;
alignas(64) char storage[MOST_ARGUMENTS][sizeof(TensorMap)];
int argument_count;

[[noreturn]] void refuse(const std::string& why) {
  fault("launch", 0, 0, "%s", why.c_str());
  _exit(3);
}

char* reserve(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) refuse("no address space for a buffer");
  return (char*)p;
}

void add_buffer(std::istream& in) {
  std::string path;
  size_t offset;
  Buffer b{};
  in >> path >> offset >> b.bytes >> b.element >> b.defined;
  const size_t rounded = (offset + b.bytes + PAGE - 1) / PAGE * PAGE;
  b.data = reserve(rounded + 2 * GUARD_BYTES) + GUARD_BYTES;
  if (b.bytes) {
    const int file = ::open(path.c_str(), O_RDWR);
    if (file < 0 || mmap(b.data, rounded, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      refuse("cannot map " + path);
    close(file);
  }
  b.data += offset;
  if (launch.checked) {                                    // pages of it that are never touched cost nothing
    const size_t shadow = (b.bytes / b.element + 1) * sizeof(GlobalWord);
    b.words = (GlobalWord*)mmap(nullptr, shadow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b.words == MAP_FAILED) refuse("no memory for the shadow of a buffer");
  }
  launch.buffers.push_back(b);
}

template <class T> void add_argument(const T& value) {
  static_assert(sizeof(T) <= sizeof(TensorMap));
  if (argument_count == MOST_ARGUMENTS) refuse("more than 64 arguments");
  launch.arguments[argument_count] = storage[argument_count];
  memcpy(storage[argument_count++], &value, sizeof value);
}

Buffer& buffer_of_argument(std::istream& in) {
  size_t i;
  in >> i;
  if (i >= launch.buffers.size()) refuse("an argument names a buffer that is not there");
  return launch.buffers[i];
}

void add_pointer(std::istream& in) {
  Buffer& b = buffer_of_argument(in);
  size_t offset;
  in >> offset;
  b.pointed = true;
  b.writable |= !(launch.entry->read_only >> argument_count & 1);
  add_argument(b.data + offset);
}

void add_map(std::istream& in) {
  Buffer& b = buffer_of_argument(in);
  Map m{};
  size_t offset;
  in >> offset >> m.element >> m.rank >> m.swizzle;
  m.base = b.data + offset;
  b.mapped = true;
  for (u32 i = 0; i < m.rank; ++i) in >> m.extent[i];
  for (u32 i = 0; i < m.rank; ++i) in >> m.box[i];
  for (u32 i = 0; i + 1 < m.rank; ++i) in >> m.stride[i];
  u64 end = offset + m.element * (u64)m.extent[0];
  for (u32 i = 1; i < m.rank; ++i) end += (m.extent[i] - 1) * m.stride[i - 1];
  if (end > b.bytes) refuse("a tensor map leaves its buffer: it ends at byte " + std::to_string(end) + " of " + std::to_string(b.bytes));
  if (!encode(m))
    refuse("a tensor map is refused: rows of the box and strides must be multiples of 16 bytes, a side of the box 1..256, and "
           "a row as long as its swizzle");
  add_argument(m);
}

void begin_kernel(std::istream& in) {
  std::string name;
  in >> name >> launch.grid.x >> launch.grid.y >> launch.grid.z >> launch.block.x >> launch.block.y >> launch.block.z >>
      launch.cluster >> launch.shared;
  launch.entry = nullptr;
  for (auto e = __start_emu_entries; e < __stop_emu_entries; ++e)
    if (name == (*e)->name) launch.entry = *e;
  if (!launch.entry) refuse("there is no kernel " + name);
  if (launch.shared > SHARED_BYTES) refuse("more than 227 KB of dynamic shared memory: " + std::to_string(launch.shared) + " bytes");
  const u32 threads = launch.block.x * launch.block.y * launch.block.z;
  if (!threads || threads > 1024) refuse("a block has 1 to 1024 threads, not " + std::to_string(threads));
  if (!launch.cluster || launch.cluster > 8 || launch.grid.x % launch.cluster)
    refuse("a cluster has 1 to 8 blocks and divides the grid");
  argument_count = 0;
  for (Buffer& b : launch.buffers) b.writable = b.pointed = b.mapped = false;
}

bool go() {
  if (argument_count != (int)launch.entry->parameters)
    refuse("the kernel has " + std::to_string(launch.entry->parameters) + " parameters, the launch gives " +
           std::to_string(argument_count));
  for (Buffer& b : launch.buffers) {         // a kernel may write through a map unless it also has a pointer, to const
    b.writable |= b.mapped && !b.pointed;
    b.written |= b.writable;
  }
  printf("START %u\n", launch.number++);                   // from 1 on in the shadow of global memory
  fflush(stdout);
  total_accesses = 0;
  timeval begin, end;
  gettimeofday(&begin, nullptr);
  const bool fine = run_launch();
  gettimeofday(&end, nullptr);
  forget_host_threads();
  printf("END %u %.4f %llu\n", launch.number - 1, (end.tv_sec - begin.tv_sec) + (end.tv_usec - begin.tv_usec) * 1e-6,
         (u64)total_accesses);
  fflush(stdout);
  return fine;
}

void set_options(std::istream& in) {
  in >> launch.checked >> launch.seed >> launch.workers >> launch.grain;
  if (!launch.checked) return;
  for (auto e = __start_emu_entries; e < __stop_emu_entries; ++e) {
    int probed = 0;
    instrumented = false;
    (*e)->probe(&probed);
    if (instrumented) continue;
    fault("uninstrumented", 0, 0, "the compiler did not instrument kernel %s: nothing would be checked", (*e)->name);
    _exit(3);
  }
}

void run(std::istream& in) {
  std::string line, item;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    words >> item;
    if (item == "options") set_options(words);
    else if (item == "buffer") add_buffer(words);
    else if (item == "kernel") begin_kernel(words);
    else if (item == "pointer") add_pointer(words);
    else if (item == "int") { int v; words >> v; add_argument(v); }
    else if (item == "long") { long v; words >> v; add_argument(v); }
    else if (item == "float") { float v; words >> v; add_argument(v); }
    else if (item == "map") add_map(words);
    else if (item == "go" && !go()) return;
  }
}
}  // namespace
}  // namespace emu

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);                        // never outlive the parent
  std::ifstream in(count > 1 ? arguments[1] : "/dev/stdin");
  emu::install_crash_handlers();
  emu::run(in);
  for (size_t i = 0; i < emu::launch.buffers.size(); ++i)
    if (emu::launch.buffers[i].written) printf("WRITTEN %zu\n", i);
  fflush(stdout);
  _exit(emu::any_fault() ? 3 : 0);
}
