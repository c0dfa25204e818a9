// Reports: one line on standard error for each distinct fault, which report.py turns into a sentence.
//
//   FAULT|kind|kernel|x,y,z|thread|pc|other pc|message
//
// Addresses are those of calls in the kernel's code, resolved to lines of its text by report.py. In a message, {2} stands
// for the line of the other address and {hex} for the line of that address. A fault does not stop the launch: the first
// one is often the consequence of a later one's cause.
#include <stdarg.h>
#include <stdio.h>

#include "state.h"

namespace emu {
namespace {
constexpr size_t MOST_FAULTS = 40;           // a broken kernel breaks in thousands of places at once
std::mutex fault_lock;
std::set<std::tuple<std::string, u32, u32>> told;
}  // namespace

void fault(const char* kind, u32 pc, u32 other_pc, const char* format, ...) {
  std::lock_guard<std::mutex> guard(fault_lock);
  if (told.size() >= MOST_FAULTS || !told.insert({kind, pc, other_pc}).second) return;
  char text[3000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char where[64] = "-";
  if (mine) snprintf(where, sizeof where, "%u,%u,%u", mine->index.x, mine->index.y, mine->index.z);
  char thread[16] = "-";
  if (current) snprintf(thread, sizeof thread, "%u", current->thread);
  fprintf(stderr, "FAULT|%s|%s|%s|%s|%x|%x|%s\n", kind, launch.entry ? launch.entry->name : "-", where, thread, pc,
          other_pc, text);
}
bool any_fault() { return !told.empty(); }
}  // namespace emu
