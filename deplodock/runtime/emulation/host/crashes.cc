// Crashes and time-outs of a kernel, as faults with a place: signals, on a stack of their own.
//
// SIGSEGV and its kin come from a stray pointer, a fiber's guard page or a division by zero. SIGTERM comes from the
// parent when time is up: each host thread then says where its block is.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#include "state.h"

namespace emu {
namespace {
constexpr size_t SIGNAL_STACK_BYTES = 64 << 10;
constexpr useconds_t TIME_TO_REPORT = 200000;              // microseconds
std::mutex host_lock;
std::vector<pthread_t> host_threads;

u32 interrupted_at(void* context) {
  return (u32)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] + 1;   // report.py looks up the byte before a return address
}

void crashed(int signal, siginfo_t* info, void* context) {
  const char* what = signal == SIGFPE   ? "an integer division by zero"
                     : signal == SIGILL ? "a place that g++ knows no correct program to reach"
                                        : "an access to memory that is not there";
  Fiber* f = current;
  if (f && signal == SIGSEGV && (char*)info->si_addr < f->stack && (char*)info->si_addr >= f->stack - PAGE)
    what = "more than 64 KB of local variables in one thread";
  fault("crash", interrupted_at(context), 0, "%s (%s, address %p)", what, strsignal(signal), info->si_addr);
  _exit(3);
}

void say_where(int, siginfo_t*, void* context) {
  if (mine) fault("timeout", launch.checked ? mine->last_pc : interrupted_at(context), 0, "still running here when time was up");
}

void time_is_up(int) {
  {
    std::lock_guard<std::mutex> guard(host_lock);
    for (pthread_t t : host_threads) pthread_kill(t, SIGUSR1);
  }
  usleep(TIME_TO_REPORT);
  _exit(3);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}
}  // namespace

void install_crash_handlers() {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) handle(signal, crashed);
  handle(SIGUSR1, say_where);
  struct sigaction action = {};
  action.sa_handler = time_is_up;
  sigaction(SIGTERM, &action, nullptr);
}

void trap() {
  fault("trap", CALLER, 0, "the kernel stops the program");
  _exit(3);
}
void index_outside(long long index, long long extent) {
  fault("index", CALLER, 0, "index %lld is out of range for a dimension of %lld", index, extent);
  _exit(3);
}

void catch_crashes() {                                     // by each host thread, once
  stack_t own = {};
  own.ss_sp = malloc(SIGNAL_STACK_BYTES);
  own.ss_size = SIGNAL_STACK_BYTES;
  sigaltstack(&own, nullptr);
  sigset_t only_main;
  sigemptyset(&only_main);
  sigaddset(&only_main, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &only_main, nullptr);
  std::lock_guard<std::mutex> guard(host_lock);
  host_threads.push_back(pthread_self());
}

void forget_host_threads() {                               // after a launch: its threads are gone
  std::lock_guard<std::mutex> guard(host_lock);
  host_threads.clear();
}
}  // namespace emu
