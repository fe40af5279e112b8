"""Counts what a training loop does and decides when it has been seen for long enough."""
from __future__ import annotations

import functools
import gc
import math
import os
import sys
import threading
import time
import weakref

from gresize_imports import after_import

from ..compiler import autotune, tracing
from ..dist import ranks
from ..lapse import blocks_ahead, counting_loops, epoch_cut, gathered, program_counters, time_lapse
from ..process import allocator, exceptions, guard, native, report_file, settings, watched
from ..program import background, call_stack, lines_not_run, lines_run, program_frames
from ..record import memory_history, modules, operators
from ..steady import steady_state, unread_loaders
from ..values import decisions, patches, policy
from . import report, stream_use

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Torch

DEFAULT_STEPS = 4
DEFAULT_SECONDS = 120.0
# The peak must not have moved in this many steps before the run is stopped.
FLAT_STEPS = 2
# A peak that never comes to rest is stopped all the same.
MOST_TIMES_STEPS = 3
# So many steps of an optimizer, and what it holds has its names; later ones cost time only.
OBSERVED_STEPS = 2
# In time-lapse it is asked at each such step which loops go round.
OBSERVED_EVERY = 4
# What all turns together leave, if it is more than that, is worth a word.
LEAST_LEFT_BYTES = 1 << 20
# A loop without any optimizer object updates by hand: this many backward passes stand for one step.
BACKWARD_FACTOR = 4


class Watch(watched.Watched):
    """The state of one process. Hooks call it; nothing that it does may reach the user's program as an exception."""

    def __init__(self, torch: Torch) -> None:
        super().__init__()
        self.torch = torch
        self.wanted_steps = settings.number("GRESIZE_PROBE_STEPS", DEFAULT_STEPS, int)
        self.seconds = settings.number("GRESIZE_PROBE_SECONDS", DEFAULT_SECONDS, float)
        self.steps = 0
        self.backward_calls = 0
        self.scaler_steps = 0
        self.history = []  # one entry a step: number, allocated peak, reserved peak, values read back
        self.highest = {}  # device -> peaks that a reset of the counters would lose
        self.now: tuple[int, ...] = (0, 0, 0)  # bytes that are allocated on all devices, and that ever were; blocks of them
        self.optimizers = weakref.WeakSet()
        self.optimizers_made, self.made_at_first, self.idle_at_first = 0, 0, []
        self.optimizer_steps = weakref.WeakKeyDictionary()
        self.timed = 0  # the process whose time is kept
        self.tuning = autotune
        self.loaders = decisions.Loaders()
        self.decisions = decisions.Decisions
        self.calls: Any = patches.Calls(torch) if torch.version.cuda else None
        self.saves = decisions.Saves()
        self.steadiness = steady_state.Steadiness()
        self.flights = stream_use.Flights()
        self.phases = epoch_cut.Phases(self.steadiness, self.asked_of_card, self.fault)
        self.children = background.Children(self.seconds)
        self.lapse = time_lapse.TimeLapse(self.seconds)
        self.loops = counting_loops.Loops(self.lapse, self.allocated_peak, self.held, self.fault)
        self.figures: list[dict[str, Any]] | None = None  # those of the devices, once they are not to change any more
        self.peak_of_training = 0  # before the epoch was cut short
        self.frozen, self.larger = [], []  # in words
        self.afterwards = []  # places of the program that something else than its loop may come to
        self.passed, self.turns = lines_run.Passed(), call_stack.Turns()
        self.called_again = set()  # what trains and may be called once more
        self.held_functions, self.waiting = [], []  # codes of functions and loaders at hand, at the first answer
        self.networks = set()  # the names that they were seen to have
        self.ahead = lines_not_run.Blocks({}, self.turns)  # what was not run, once that was looked at
        self.steps_in_all = program_counters.UNTOLD_STEPS
        self.ledger = memory_history.Ledger(torch) if settings.records_events() else None
        self.layers = modules.Layers(torch) if settings.wants_part("modules") else None
        self.operators = operators.Operators(torch) if settings.wants_part("operators") else None
        self.rank = settings.integer("RANK")
        self.world_size = settings.integer("WORLD_SIZE")

    # -- peaks

    def cuda_used(self) -> bool:
        return bool(self.torch.version.cuda) and self.torch.cuda.is_initialized()

    def peaks(self) -> tuple[int, int]:
        """The highest allocated and reserved bytes of any device so far."""
        allocated = reserved = 0
        now = [0, 0, 0]
        if not self.cuda_used():
            return 0, 0
        for device in range(self.torch.cuda.device_count()):
            stats = self.keep_peaks(device)
            # What was asked for: a block of the cache that is handed out may be larger, by up to 1 MiB, and another one each time.
            now[0] += stats.get("requested_bytes.all.current", stats.get("allocated_bytes.all.current", 0))
            now[1] += stats.get("requested_bytes.all.allocated", stats.get("allocated_bytes.all.allocated", 0))
            now[2] += stats.get("allocation.all.current", 0)
            a, r = self.highest[device]
            allocated, reserved = max(allocated, a), max(reserved, r)
        self.now = tuple(now)
        return allocated, reserved

    def allocated_peak(self) -> int:
        return self.peaks()[0] if self.cuda_used() else 0

    def held(self) -> int:
        """The bytes that are in use."""
        self.peaks()
        return self.now[0]

    def asked_of_card(self) -> gathered.Look:
        self.peaks()
        return gathered.Look(self.now[0], self.now[1], native.arrays_read_back())

    def leaves(self) -> tuple[int, int]:
        """What each step or turn leaves, in whole bytes and upwards, and how many there are."""
        found = [] if self.lapse.whole() and not self.left_out() else [self.loops.leaves()] if self.lapse.active else []
        if not self.lapse.active or not found[:1] or not self.loops.leaving:
            found.append((self.steadiness.grows_bytes(), self.steps_in_all))
        each, steps = max(found, key=lambda left: left[0] * left[1], default=(0, 0))
        return (int(math.ceil(each)), steps) if each * steps > LEAST_LEFT_BYTES else (0, steps)

    def left_out(self) -> bool:
        """Whether batches or turns were left out in time-lapse."""
        return self.phases.left_out or self.loops.left_out_turns()

    def keep_peaks(self, device: int) -> dict[str, int]:
        stats = allocator.memory_stats(self.torch, device)
        a, r = self.highest.get(device, (0, 0))
        self.highest[device] = (
            max(a, stats.get("allocated_bytes.all.peak", 0)),
            max(r, stats.get("reserved_bytes.all.peak", 0)),
        )
        return stats

    # -- events of the loop

    def on_backward(self) -> None:
        with self.lock:
            if self.operators is not None:
                self.operators.arrived()
            self.backward_calls += 1
            self.saves.step()
            if self.lapse.active:
                return
            if len(self.optimizers) or self.optimizer_steps:
                return
            if self.backward_calls % BACKWARD_FACTOR == 0:
                self._note(self.backward_calls // BACKWARD_FACTOR)

    def on_optimizer_step(self, optimizer: Any) -> None:
        with self.lock:
            if self.operators is not None:
                self.operators.arrived()
            self.saves.step()
            self.loops.steps += 1
            if self.lapse.active:
                self.looking(self.loops.stepped, optimizer, sys._getframe(2))
                self.looking(self.phases.stepped, optimizer)
                if self.loops.steps % OBSERVED_EVERY == 0:
                    self.looking(self.turns.observe, program_frames.running(sys._getframe(2)))
            count = self.optimizer_steps.get(optimizer, 0) + 1
            self.optimizer_steps[optimizer] = count
            if self.ledger is not None:
                guard.quietly(self.ledger.mark, "optimizer_end")
                if not self.lapse.active or count <= OBSERVED_STEPS:
                    guard.quietly(self.ledger.observe, self.optimizers)
                if self.lapse.active:
                    guard.quietly(self.ledger.mark, "step", self.loops.steps)
            if self.loops.steps == 1 and self.calls:
                self.calls.rows.forget()
            if count == 1 and self.layers is not None:
                guard.quietly(self.layers.on_first_step, optimizer)
            if count <= self.steps:  # another optimizer of the same iteration
                return
            self.steps = count
            self._note(count)

    def _note(self, number):
        if self.done or self.lapse.active:
            return
        if self.ledger is not None:
            guard.quietly(self.ledger.mark, "step", number)
        self.phases.step()
        if self.operators is not None:
            guard.quietly(self.operators.on_step, number)
        self.looking(self._observe, sys._getframe())
        allocated, reserved = self.peaks()
        self.steadiness.step(*self.now)
        self.flights.step()
        if number == self.wanted_steps and self.world_size and self.looking(ranks.all_say, "fed", self.phases.fed):
            self.phases.cut(time.monotonic() - self.begin, together=True)
            self.peak_of_training = allocated
        if len(self.history) < report.MOST_STEPS:
            self.history.append([number, allocated, reserved, native.values_read_back(self.decisions.watched_reads)])
        if self.cuda_used() and self._enough(number) and not self._wants_more(number):
            self._first_answer(allocated)
        elif len(self.history) < 2 or self.history[-1][1:3] != self.history[-2][1:3]:
            report.write(self, "running")  # a process that is killed later still leaves what it was seen to need
        if self.operators is not None:
            self.operators.go_on()

    def _observe(self, frame):
        """The functions of the program's that are running, at the end of a step."""
        frames = program_frames.running(frame)
        self.turns.observe(frames)
        if len(self.history) < OBSERVED_STEPS:
            self.networks.update(program_frames.networks_of(frames))

    def _first_answer(self, allocated):
        """Enough was seen for an answer. What the program does later is seen from here on, where there is time for it."""
        self.looking(self._before_it_goes_on, sys._getframe())
        if not time_lapse.wanted() or not self.lapse.start(self.begin, allocated):
            self.stop("stopped")
            return
        self.peak_of_training = allocated
        self.idle_at_first, self.made_at_first = [weakref.ref(o) for o in self._idle()], self.optimizers_made
        report.write(self, "stopped")
        guard.quietly(self._write_lists)
        self.phases.go_on(self.lapse, self.loops)
        self.keep_time()

    def keep_time(self) -> None:
        """Starts the thread that ends the program in time, where this process has none: a fork takes no threads along."""
        if self.timed != os.getpid():
            self.timed = os.getpid()
            threading.Thread(target=_budget, args=(self,), name="gresize-budget", daemon=True).start()

    def _before_it_goes_on(self, frame):
        frames = program_frames.running(frame)
        self.steps_in_all = self.loops.steps_in_all(self.phases.batches() if self.phases.fed else 0) if not call_stack.open_ended(frames) else program_counters.UNTOLD_STEPS
        self.held_functions = call_stack.held(frames)
        self.called_again = set(call_stack.again(frame))
        self.waiting = unread_loaders.begun()
        if self.calls:
            self.calls.rows.hold(frames, [loader.dataset for loader in list(self.loaders.read)])

    def look(self) -> None:
        """What is to be seen of a program in time-lapse; asked every now and then, from a thread of ours."""
        allocated, reserved = self.peaks()
        if self.lapse.see(self.loops.steps, allocated, reserved, len(self.loaders.made), self.phases.loaders, self.optimizers_made):
            with self.lock:
                if not self.done:  # the last report is not replaced by an earlier one
                    report.write(self, "stopped")

    def _wants_more(self, number):
        """Whether something is near that was not seen, such as what follows an epoch."""
        try:
            if os.environ.get("WORLD_SIZE", "1") == "1" and self.children.busy(time.monotonic() - self.begin, self.phases.workers):
                return True
        except Exception as e:
            self.fault(e)
        if time_lapse.wanted():
            return False  # which sees what follows an epoch
        was = self.phases.active
        more = self.phases.wants_more(time.monotonic() - self.begin)
        if self.phases.active and not was:
            self.peak_of_training = self.history[-1][1]
        return more

    def flat(self) -> bool:
        if self.lapse.active and not self.lapse.rests():
            return False
        if self.lapse.active and self.lapse.rested(self.loops.steps, self.peaks()[1]):
            return True
        if len(self.history) <= FLAT_STEPS:
            return False
        if not self.history[-1][2]:  # an allocator without counters: whether it rests is not known
            return False
        last = self.history[-1 - FLAT_STEPS :]
        return all(h[2] == last[-1][2] for h in last) and self.steadiness.rests([h[1] for h in last])

    def idle_optimizer(self) -> bool:
        """An optimizer that was made and has hardly been used: a second network whose turn comes late."""
        idle = self._idle()
        if self.lapse.active:  # those that were made since are seen, or their turn was not waited for
            idle = [o for o in idle if any(o is known() for known in self.idle_at_first)]
        return bool(idle) and not self.lapse.whole()

    def _idle(self):
        return [o for o in list(self.optimizers) if self.optimizer_steps.get(o, 0) < 2]

    def _enough(self, number):
        if number < self.wanted_steps:
            return False
        if number >= MOST_TIMES_STEPS * self.wanted_steps:
            return True
        if not self.phases.fed and self.steadiness.uneven() and number < self.wanted_steps + steady_state.GROWING_STEPS:
            return False  # a first step may have been another, as where DDP makes its buckets anew
        return self.flat() and not self.idle_optimizer()

    # -- the end

    def leave_report(self, reason: str) -> None:
        report.write(self, reason)
        if reason == "stopped":
            self._look_beyond()
            report.write(self, reason)
        if not self.lapse.active or self.peaks()[0] > self.lapse.first_peak + time_lapse.NEW_BYTES:
            self._write_lists()
        report_file.flush_streams()
        self.saves.clean()
        guard.quietly(ranks.leave)
        self._end_children()

    def _look_beyond(self):
        """What the steps could not show; the figures are written down already."""
        try:
            self.figures = report.devices_of(self)
            self.ahead = blocks_ahead.look(self)
            if self.lapse.ended == "budget":
                self.frozen = time_lapse.frozen(self.torch) + time_lapse.begun_anew(self.optimizers_made - self.made_at_first)
            if self.lapse.whole():
                background.came()
            self.afterwards = background.places(self.ahead, self.children)
            self.steadiness.sample(list(self.loaders.read))
            waiting = self.waiting if self.left_out() else []
            self.larger = unread_loaders.larger_samples(waiting if self.lapse.whole() else self.loaders.waiting() + waiting, self.steadiness.most_elements)
            if self.calls and not self.steadiness.settled:
                self.steadiness.varies = self.steadiness.varies or self.calls.rows.longer()
            if self.peaks()[0] > self.peak_of_training:  # a validation whose batches differ counts where it is what needs most
                self.steadiness.varies = self.steadiness.varies or self.steadiness.varies_later
        except Exception as e:
            self.fault(e)

    def _write_lists(self):
        if self.ledger is not None and self.cuda_used():
            report_file.write_lines("events", self.ledger.lines())
        if self.layers is not None and self.layers.roots:
            report_file.write_lines("modules", self.layers.lines(self.steps))
        if self.operators is not None and self.cuda_used():
            report_file.write_lines("operators", self.operators.lines())
        for name in ("gresize_offload.recorder", "gresize_offload.swapper"):
            layer = sys.modules.get(name)
            if layer is not None and layer.current is not None:
                report_file.write_lines("saved", layer.lines())

    @staticmethod
    def _end_children():
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is None:
            return
        for child in multiprocessing.active_children():
            child.kill()

    @staticmethod
    def leave_unseen() -> None:
        """This rank is not one of those that are looked at."""
        os._exit(0)

    def finish(self) -> None:
        """The interpreter ends by itself."""
        with self.lock:
            if self.done:
                return
            exception = getattr(sys, "last_value", None)
            if self.lapse.active:
                self.lapse.end(exception)
                gc.collect()  # what only looks at the program hold of it: its finalizers are seen, too
            lapse = self.lapse.active and (exception is not None or self.phases.turned or self.left_out())
            if (lapse or self.phases.active and not self.lapse.active) and not exceptions.is_out_of_memory(self.torch, exception):
                # Enough was seen before its epochs were cut short: what the program made of that is no fault of its own.
                self.lapse.end(exception)
                self.stop("stopped")
            self.done = True
            report_file.hide_from_measurement()  # to the end: what the report took is still there
            report.write(self, "exit" if exception is None else "exception", exception)
            self.saves.clean()
            self._write_lists()

    def after_fork(self) -> None:
        """A forked child counts for itself."""
        self.begin_anew()
        self.steps = self.backward_calls = self.scaler_steps = 0
        self.history = []
        self.highest = {}
        self.optimizer_steps = weakref.WeakKeyDictionary()


def _budget(watch):
    while True:
        left = watch.seconds - (time.monotonic() - watch.begin)
        if watch.lapse.active:
            watch.looking(watch.look)
            left = min(left, time_lapse.LOOKS_EVERY_SECONDS)
            if watch.lapse.over():
                watch.stop("stopped")
        elif watch.phases.late():
            watch.stop("stopped")
        if left <= 0:
            watch.stop("budget_spent")
            return
        if ranks.others_left():
            watch.stop("stopped")
            return
        time.sleep(min(left, 1.0))


def _hook_backward(watch, torch):
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args, **kwargs):
        if watch.ledger is not None:
            guard.quietly(watch.ledger.mark, "backward")
        result = original(*args, **kwargs)
        if watch.ledger is not None:
            guard.quietly(watch.ledger.mark, "backward_end")
        guard.quietly(watch.on_backward)
        return result

    torch.autograd.backward = backward


def _hook_optimizers(watch, torch):
    optimizer_class = torch.optim.Optimizer
    original_init = optimizer_class.__init__

    @functools.wraps(original_init)
    def init(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        watch.optimizers.add(self)
        watch.optimizers_made += 1
        watch.looking(watch.loops.arm, sys._getframe(1))

    optimizer_class.__init__ = init
    # torch.optim hides this module from its own namespace.
    module = sys.modules.get("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(lambda optimizer, args, kwargs: guard.quietly(watch.on_optimizer_step, optimizer))
    before = getattr(module, "register_optimizer_step_pre_hook", None)
    if before is not None and watch.ledger is not None:
        before(lambda optimizer, args, kwargs: guard.quietly(watch.ledger.mark, "optimizer"))


def _hook_scaler(watch, torch):
    module = getattr(getattr(torch, "amp", None), "grad_scaler", None) or getattr(torch.cuda.amp, "grad_scaler", None)
    scaler = getattr(module, "GradScaler", None)
    if scaler is None:
        return
    original = scaler.step

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        watch.scaler_steps += 1
        return original(self, *args, **kwargs)

    scaler.step = step


def _hook_resets(watch, torch):
    """A program that resets the peak counters must not hide what it needed before."""
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        original = getattr(torch._C, name, None)
        if original is None:
            continue

        def reset(*args, _original=original):
            guard.quietly(watch.peaks)
            return _original(*args)

        setattr(torch._C, name, reset)


def start(torch: Torch) -> None:
    """Called once torch has been imported."""
    if autotune.is_compile_worker():
        return
    watch = Watch(torch)
    if not torch.version.cuda:
        report.write(watch, "cpu_only_torch")  # its last report, however the program ends
        return
    import atexit

    atexit.register(guard.quietly, watch.finish)
    guard.quietly(background.hook_exit)
    guard.quietly(_hook_backward, watch, torch)
    guard.quietly(_hook_optimizers, watch, torch)
    guard.quietly(_hook_scaler, watch, torch)
    guard.quietly(_hook_resets, watch, torch)
    guard.quietly(allocator.hook_memory_fraction, torch)
    if watch.calls.shadow.policy.side != policy.OFF:
        guard.quietly(watch.calls.install)
    guard.quietly(watch.flights.hook, torch, watch.calls)
    guard.quietly(decisions.hook_tensors, torch, watch.calls)
    guard.quietly(watch.saves.hook, torch)
    # A compiler traces PyTorch's own functions; what follows values steps aside for it.
    guard.quietly(tracing.when_traced, torch, watch.calls)
    guard.quietly(tracing.before, torch, watch.passed.compiled)
    guard.quietly(tracing.before, torch, watch.loops.retire)
    guard.quietly(tracing.before_scripts, torch, watch.loops.retire)
    guard.quietly(watch.loaders.hook)
    guard.quietly(watch.phases.hook, torch)
    guard.quietly(autotune.watch_imports)
    if watch.ledger is not None:
        guard.quietly(torch.cuda._lazy_call, lambda: guard.quietly(watch.ledger.begin))
        guard.quietly(watch.ledger.hook_modules)
    if watch.layers is not None:
        guard.quietly(watch.layers.hook)
    if watch.operators is not None:
        guard.quietly(tracing.before, torch, watch.operators.retire)
    for module in counting_loops.PASSES_ON:
        guard.quietly(after_import, module, lambda found: watch.looking(watch.loops.arm_module, vars(found)))
    guard.quietly(ranks.hook_distributed, torch, watch)
    guard.quietly(after_import, "torch.multiprocessing.spawn", ranks.hook_spawn)
    guard.quietly(after_import, "torch.distributed.launcher.api", ranks.hook_launcher)
    # What is run before the card is used takes nothing of it; imports of libraries are long, and not followed.
    guard.quietly(torch.cuda._lazy_call, lambda: watch.looking(watch.passed.watch, sys._getframe()))
    # A program that is killed before its first step, such as for host memory, leaves a sign that it was there.
    guard.quietly(torch.cuda._lazy_call, lambda: report.write(watch, "running", initializing=True))
    os.register_at_fork(after_in_child=watch.after_fork)
    watch.keep_time()
