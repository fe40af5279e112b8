"""What the loop that trains is going to do at a later step, read from its source.

A run is stopped once its steps look alike. Whether they stay so is in the program itself: a branch that its own counter opens
at step 500 was not seen at step 4, and a size may be made from that counter. The tests of branches and the sizes are worked out for
the steps to come, from counters, constants and nothing that would run any of the program's code. What opens soon is waited for; what
opens late is named, and so is what may open at a step that cannot be told, and what stands behind a loop that no data loader ends.
Only a branch that changes what the loop works on, makes tensors, or uses a model counts: printing and saving do not.
"""
import ast
import os
import sys
import time

from . import chosen, comprehended, gathers, grids, light, lists, sources, trainers, turns
from .expressions import PLAIN, Unknown, constant_key, evaluate, paths_in
from .growth import Growth, Reach
from .motions import MOST_TURNS, NOW, UNBOUNDED, Motions, Own, things
from .shifts import Shifts, written_out
from .sources import resolve
from .unseen import Seen, Unseen

MOST_FRAMES = 60
MOST_PATHS = 400
# What opens within this time, and within this part of what is left of the budget, is waited for; of several ranks within so many steps, for which they need no clock.
MOST_SECONDS = 20.0
BUDGET_SHARE = 0.5
MOST_STEPS_OF_RANKS = 8
MOST_NAMED = 8
# What the look ahead may cost of the processor.
MOST_LOOKING_SECONDS = 3.0
# Modules of a network that hold nothing.
SMALL_MODULES = ("torch.nn.modules.loss", "torch.nn.modules.activation", "torch.nn.modules.dropout", "torch.nn.modules.pooling", "torch.nn.modules.flatten")


class Loop:
    """A loop of the program that stands around a training step."""

    def __init__(self, node, behind, filename):
        self.node, self.behind, self.filename = node, behind, filename
        self.nodes = dict(list(dict(paths_in(node)).items())[:MOST_PATHS])  # path -> an expression that says it
        self.observed = {path: [] for path in self.nodes}  # path -> values, one a step; None where it was none that is plain
        self.lines = set()  # that were being run at some step
        self._assigned = None

    def assigned(self):
        if self._assigned is None:
            self._assigned = sources.assignments([self.node])
        return self._assigned

    def observe(self, moment, line):
        self.lines.add(line)
        for path, values in self.observed.items():
            value = resolve(self.nodes[path], moment)
            values.append(value if isinstance(value, PLAIN) else None)


class Counter:
    """A number that an object holds and counts up at a pace of its own, which opens a branch when it is at some value."""

    def __init__(self, owner, node, begin, turns, stride, filename, line):
        self.owner, self.node, self.filename, self.line = owner, node, filename, line
        self.stride, self.at, self.last, self.came = stride, begin + stride * turns, begin, False

    def look(self):
        """Notes whether it has been there: it is there or beyond, or has begun anew."""
        try:
            now = sources.attribute(self.owner, self.node.attr) if isinstance(self.node, ast.Attribute) else dict.get(self.owner, constant_key(self.node))
            self.came = self.came or (now - self.at) * self.stride >= 0 or (now - self.last) * self.stride < 0
            self.last = now
        except TypeError:
            pass


class Horizon:
    """The loops around the training step, from the first step on."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.loops = {}  # (id of a frame, line of a loop) -> Loop
        self.times = []  # of the first and the last step
        self.until = None
        self.ending = None  # (file, line, time): the program's end is waited for, for what comes there
        self.changing, self.evaluating, self.growing = [], [], []
        self.turning = False
        self.by_turns = set()  # what was named of that depends on nothing but the turns of loops, of which time-lapse leaves out no kind
        self.test = None  # (file, line) of the test whose branch is being looked at, which does the same each time, and of the branch
        self.tests = {}  # what was named of such a branch -> these places
        self.outer = False  # what is being looked at depends on no counter of steps
        self.of_the_whole = set()  # what was named of that: a program that was followed to its end has been through it
        self.waited = []  # counters of objects that are to open a branch soon
        self.lines = {}  # filename -> lines that called for a backward pass or a step
        self.lists = lists.Lists()
        self.steps_in_all = turns.UNTOLD_STEPS
        self.keeps_bytes = 0  # each time that a later step comes by, where that is little

    def _around(self, frame):
        """The program's own frames, the innermost first, with their loops."""
        within = None
        for _ in range(MOST_FRAMES):
            if frame is None:
                return
            module = sources.tree(frame.f_code.co_filename)
            if comprehended.is_frame(frame):
                within = frame
            elif module is not None:
                loops = []
                for node, behind in comprehended.loops(module, frame, within) + sources.loops_around(module, frame.f_lineno, frame.f_code.co_name)[0]:
                    key = id(frame), node.lineno, getattr(node, "col_offset", 0)
                    if key not in self.loops:
                        self.loops[key] = Loop(node, behind, frame.f_code.co_filename)
                    loops.append(self.loops[key])
                yield frame, [loop for loop in loops if not _goes_through_optimizers(loop.node, frame)]
                within = None
            frame = frame.f_back

    def observe(self, frame):
        """A training step has ended."""
        if self.until is not None:
            return
        self.times = self.times[:1] + [time.monotonic()]
        inside = True  # of the innermost loop
        for f, loops in self._around(frame):
            self.lines.setdefault(f.f_code.co_filename, set()).add(f.f_lineno)
            moment = sources.Moment(f) if loops or inside else None
            if inside:
                self.lists.observe(f.f_code, moment, loops)
            inside = inside and not loops
            for loop in loops:
                loop.observe(moment, f.f_lineno)

    def passing(self, frame):
        """These lines are being run."""
        if self.until is not None:
            return
        for _ in range(MOST_FRAMES):
            if frame is None:
                return
            if sources.is_users(frame.f_code.co_filename):
                self.lines.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
            frame = frame.f_back

    def wants_more(self, frame, number, begin, fed, alone, loaders, batches):
        """Whether to go on for what comes soon, asked after each step once enough steps were seen."""
        if self.until is None:
            step_seconds = (self.times[-1] - self.times[0]) / max(number - 1, 1)
            allowed = min(MOST_SECONDS, BUDGET_SHARE * (self.seconds - (time.monotonic() - begin)))
            # Ranks that went on for different times would wait for each other.
            steps = min(allowed / max(step_seconds, 1e-4), UNBOUNDED if alone else MOST_STEPS_OF_RANKS)
            self.until = number
            look = Look(self, frame, number, step_seconds, steps, fed, loaders.largest_read)
            look.all()
            self.steps_in_all = turns.in_all([(moment, loops) for _, moment, loops in look.frames], fed, look.turns_left)
            self.lists.judge(look.frames, look.reach.scopes, list(loaders.read), batches)
        for counter in self.waited:
            counter.look()
        if number >= self.until and self.waited:
            waited, self.waited = self.waited, []
            for counter in waited:
                if not counter.came:
                    self.name(self.changing, counter.filename, counter.line, None)
        return number < self.until

    def late(self):
        """Whether the program's end was waited for in vain: what comes there is then named."""
        if self.ending is None or time.monotonic() < self.ending[2]:
            return False
        self.name(self.changing, self.ending[0], self.ending[1], None)
        return True

    def came(self, answered):
        """answered: (file, line) of tests that had either answer since the first answer, and of what led to a step, so that what they open came by."""
        for doubts in (self.changing, self.evaluating):
            doubts[:] = [t for t in doubts if answered.isdisjoint(self.tests.get(t, ()))]

    def settle(self, left_out, unsettled):
        """The program was followed to its own end; left_out: of batches or turns some did not come by, so that counters of steps have not come as far;
        unsettled: nor did all kinds of turns."""
        for doubts in (self.changing, self.evaluating, self.growing):
            doubts[:] = [t for t in doubts if left_out and t not in self.of_the_whole and (unsettled or doubts is self.growing or t not in self.by_turns)]

    def name(self, what, filename, line, ahead):
        text = "%s line %d%s" % (os.path.basename(filename), line, ", %d step%s later" % (ahead, "s" if ahead > 1 else "") if ahead else "")
        self.say(what, text)

    def say(self, what, text):
        if self.outer:
            self.of_the_whole.add(text)
        elif text in self.of_the_whole:
            self.of_the_whole.remove(text)
        if self.test is None:
            self.tests.pop(text, None)
        elif text not in self.changing + self.evaluating:
            self.tests[text] = self.test
        if not self.turning:
            self.by_turns.discard(text)
        elif text not in self.changing + self.evaluating:
            self.by_turns.add(text)
        if len(what) < MOST_NAMED and text not in what:
            what.append(text)


class Look:
    """One look ahead."""

    def __init__(self, horizon, frame, number, step_seconds, allowed_steps, fed, loader_rows):
        self.frame = frame
        self.horizon, self.number, self.step_seconds, self.allowed_steps, self.fed = horizon, number, step_seconds, allowed_steps, fed
        self.deadline = time.thread_time() + MOST_LOOKING_SECONDS
        self.scale = light.Scale(self._always)
        self.frames = [(f, sources.Moment(f), loops) for f, loops in horizon._around(frame)]
        observations = [len(v) for _, _, loops in self.frames for loop in loops[:1] for v in list(loop.observed.values())[:1]]
        self.motions = Motions(max(observations or [1]))
        self.growth = Growth(self.motions, self.scale)
        self.shifts = Shifts(self.motions, self.scale)
        self.reach = Reach()
        self.seen = Seen(self.motions, self._always, loader_rows)
        self.unseen = Unseen(self.seen, self._always)

    def all(self):
        for frame, _, loops in reversed(self.frames):  # what runs the outermost loop is looked at where it is
            self.reach.codes.add(frame.f_code)
            if loops:
                break
        for frame, moment, loops in self.frames:
            self.motions.around(moment, loops)
            self.scale.usual_batch = max(self.scale.usual_batch, light.largest_given([n for loop in loops[:1] for n in loop.node.body], moment))
            self.reach.statements([loops[-1].node] if loops else _statement_at(frame), moment)
        for scope in self.reach.scopes:
            self.motions.reached(scope)
        reached = {sources.code_of(scope.function) for scope in self.reach.scopes}
        for frame, moment, loops in self.frames:
            if loops and frame.f_code not in reached:
                self.motions.assigns(moment, loops[-1])
        self.seen.loops(self.frames)
        self.end = self._end()
        stepping = True  # the innermost loop of all goes round once a step
        for frame, moment, loops in self.frames:
            for i, loop in enumerate(loops):
                self._loop(loop, loops[i - 1] if i else None, moment, stepping)
                stepping = False
            if not loops and self.frames[0][2]:  # a caller of what trains
                self.horizon.outer = True
                self._behind(_behind_line(frame), None, moment, frame.f_code.co_filename)
                self.horizon.outer = False
        for scope in self.reach.scopes:
            filename = sources.code_of(scope.function).co_filename
            body = sources.body_of(scope.node)
            self._branches(body, None, scope, filename, UNBOUNDED, False)
            self._sizes(body, scope, filename, UNBOUNDED)
        trainer = trainers.ahead(self.frame)
        if trainer is not None:
            what, text = trainer
            self.horizon.say({"changes": self.horizon.changing, "keeps": self.horizon.growing}.get(what, self.horizon.evaluating), text)
        self.horizon.outer = True
        for filename, line in grids.Grids(self.frame, self.frames, self.reach.scopes, self.fed).places():
            self.horizon.name(self.horizon.changing, filename, line, None)
        self.horizon.outer = False
        for filename, line in chosen.functions(self.frames, self.reach.scopes, self.horizon.lines):
            self.horizon.name(self.horizon.changing, filename, line, None)

    def _late(self, filename):
        """A program that is too large to be read ahead is not known to go on as it began."""
        if time.thread_time() <= self.deadline:
            return False
        self.horizon.name(self.horizon.changing, filename + " and more than is read ahead, from", 1, None)
        return True

    def _loop(self, loop, inner, moment, stepping):
        left = self.turns_left(loop, moment) if stepping else UNBOUNDED
        self.horizon.outer = not stepping
        body = [s for s in loop.node.body] if inner is None else _without(loop.node.body, inner.node)
        if left > 0:
            self._branches(body, loop.node, moment, loop.filename, left, stepping)
            self._sizes(body, moment, loop.filename, left)
        if not stepping and left > 0:
            self._anew(body, loop, moment, inner is not None)
            kept = comprehended.kept(body, loop, moment)
            if kept is not None:
                self.horizon.name(self.horizon.growing, loop.filename, kept, None)
        self.horizon.outer = True
        if not stepping or not self.fed:  # what is behind a loop that a data loader feeds is seen
            self._behind(loop.behind, loop.node, moment, loop.filename)
        self.horizon.outer = False

    def _end(self):
        """After how many steps the only loop of the program is through, if it says so and that is soon."""
        loops = [(loop, moment) for _, moment, around in self.frames for loop in around]
        left = self.turns_left(*loops[0]) if len(loops) == 1 and not self.fed else UNBOUNDED
        return left if left <= self.allowed_steps else None

    def _behind(self, statements, loop, moment, filename):
        what = self._evaluated(self.scale.weigh(statements, loop, moment), statements, moment)
        end = self.end if what == light.CHANGES else None
        if end is not None:
            self.horizon.ending = filename, statements[0].lineno, time.monotonic() + end * self.step_seconds + MOST_SECONDS
        if what:
            self._found(what, filename, statements[0], end, end is not None)

    def _anew(self, body, loop, moment, around_loop):
        """An outer loop that builds another model each time, while the last one is still there; or that goes through things of which the next may be larger."""
        torch, fits = sys.modules["torch"], comprehended.fit_beside(body, moment)
        for node in sources.inside(body):
            callee = resolve(node.func, moment) if isinstance(node, ast.Call) else None
            if isinstance(callee, type) and issubclass(callee, torch.nn.Module) and not callee.__module__.startswith(SMALL_MODULES):
                if not fits.get(id(node)) or any(self.motions.survey(a, moment).moves() for a in list(node.args) + [k.value for k in node.keywords]):
                    self._found(light.CHANGES, loop.filename, node, None, False)
            elif fits.get(id(node)) is False:
                self._found(light.CHANGES, loop.filename, node, None, False)
        if isinstance(loop.node, ast.For) and not self.fed and around_loop:
            items = things(loop.node.iter, moment)
            if len(items) > 1 and any(i is not items[0] and i != items[0] for i in items):
                self._found(light.CHANGES, loop.filename, loop.node, None, False)

    def _always(self, test, scope):
        """What a test says at every step, where that is known."""
        try:
            return bool(self.motions.compute(test, scope, None, {}))
        except Exception:
            return None

    def turns_left(self, loop, moment):
        """How often the loop goes round from now on, where it says so."""
        return min(self._left_by_head(loop.node, moment), self._left_by_break(loop.node, moment))

    def _left_by_break(self, node, moment):
        """By a test in its body that leaves it and is asked in each turn; one turn more, for where in a turn its counter counts."""
        if any(isinstance(n, ast.Continue) for n in sources.inside(node.body)):
            return UNBOUNDED
        left = UNBOUNDED
        for test in [s.test for s in node.body if isinstance(s, ast.If) and isinstance(s.body[-1], (ast.Break, ast.Return))]:
            survey = self.motions.survey(test, moment)
            if survey.moves() and not survey.own and not survey.drifts:
                ends = [ahead for ahead, answer in self.motions.future(test, moment, survey, UNBOUNDED) if answer is not Unknown and answer]
                left = min([left] + [(ahead + 1) * survey.turns_of_a_step() for ahead in ends[:1]])
        return left

    def _left_by_head(self, node, moment):
        if isinstance(node, ast.While):
            survey = self.motions.survey(node.test, moment)
            if not survey.moves() or survey.own or survey.drifts:
                return UNBOUNDED
            for ahead, answer in self.motions.future(node.test, moment, survey, UNBOUNDED):
                if answer is not Unknown and not answer:
                    return ahead * survey.turns_of_a_step()
            return UNBOUNDED
        if isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", None) == "range" and not node.iter.keywords:
            try:
                span = range(*[evaluate(a, lambda path, n: _plain(n, moment)) for a in node.iter.args])
                return len(span) - 1 - span.index(resolve(node.target, moment))
            except Exception:
                pass
        return UNBOUNDED

    def _branches(self, statements, loop, scope, filename, left, stepping):
        for node in statements:
            if self._late(filename):
                return
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(node, (ast.If, ast.IfExp)):
                taken = self._branch(node, loop, scope, filename, left, stepping)
                sides = [s if isinstance(s, list) else [s] for s in (node.body, node.orelse)]
                inner = [s for s, value in zip(sides, (True, False)) if taken is None or taken == value]
                self._branches([node.test] + [n for s in inner for n in s], loop, scope, filename, left, stepping)
            else:
                for branch in written_out(node):
                    self._branch(branch, loop, scope, filename, left, stepping)
                self._branches(list(ast.iter_child_nodes(node)), loop, scope, filename, left, stepping)

    def _branch(self, branch, loop, scope, filename, left, stepping):
        """Looks at both sides of a branch; the side that is always taken, where its test says so."""
        always = self._always(branch.test, scope)
        survey = self.motions.survey(branch.test, scope)
        if always is not None or not survey.moves():
            return always
        seen = {bool(v) for v in self.motions.past(branch.test, scope, survey, branch.test.lineno)}
        for value, side in ((True, branch.body), (False, branch.orelse)):
            if not side:
                continue
            first = side[0] if isinstance(side, list) else side
            last = side[-1] if isinstance(side, list) else side
            lines = self.horizon.lines.get(filename, ()) if isinstance(side, list) and first.lineno > branch.test.lineno else ()
            was = value in seen or any(first.lineno <= n <= (getattr(last, "end_lineno", None) or last.lineno) for n in lines)
            lasting, own = self._lasting(loop, scope), sources.assignments([loop]) if loop is not None else scope.assigned() if isinstance(scope, sources.Called) else {}
            keeps = isinstance(side, list) and (light.keeps(side, scope, lasting) or gathers.gathers(side, scope, own))
            little = keeps and gathers.keeps_little(side, scope, lasting) and not gathers.gathers(side, scope, own)
            what = None if was else self._weigh(side, loop, scope)
            if not was and not what and not isinstance(side, list):
                what = self.shifts.chosen(side, branch.orelse if value else branch.body, scope)
            if not what and not keeps:
                continue
            ahead, certain = self._opens(branch.test, value, scope, survey, left)
            if ahead is None:
                continue
            if little:
                self.horizon.keeps_bytes = gathers.LEAST_BYTES
            elif keeps:
                self.horizon.name(self.horizon.growing, filename, first.lineno, None)
            if what and not (what == light.CHANGES and self._waits(branch.test, value, scope, survey, filename, first)):
                adds = _adds_up(side, scope, int(isinstance(scope, sources.Called)))
                self.horizon.turning, self.horizon.test = survey.by_turns() and not adds, None if adds else ((filename, branch.test.lineno), (filename, first.lineno))
                self._found(what, filename, first, ahead if stepping and certain else None, stepping and certain and not survey.own)
        self.horizon.turning, self.horizon.test = False, None
        return None

    def _waits(self, test, value, scope, survey, filename, first):
        """Whether a counter of an object opens a branch in some steps, if it counts them, so that it can be waited for; whether it did is asked then."""
        counters = [(node, m) for node, m in ((n, self.motions.of(p, n, scope)) for p, n in paths_in(test)) if isinstance(m, Own)]
        if not isinstance(scope, sources.Called) or len(survey.own) != 1 or survey.linear or survey.drifts or len(counters) != 1:
            return False
        node, motion = counters[0]
        owner = resolve(node.value, scope) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        if owner is None or motion.values is not None or type(motion.now) is not int or type(motion.stride) is not int or motion.most < UNBOUNDED:
            return False
        for turns in range(1, int(min(MOST_TURNS, self.allowed_steps))):
            try:
                answer = bool(self.motions.compute(test, scope, NOW, {id(motion): motion.now + motion.stride * turns}))
            except Exception:
                return False
            if answer == value:
                self.horizon.waited.append(Counter(owner, node, motion.now, turns, motion.stride, filename, first.lineno))
                self.horizon.until = max(self.horizon.until, self.number + turns + light.STEPS_AFTER)
                return True
        return False

    @staticmethod
    def _lasting(loop, scope):
        """What outlives one turn of a loop, or one call of a function."""
        own = sources.assignments([loop]) if loop is not None else scope.assigned() if isinstance(scope, sources.Called) else {}
        return lambda name: name not in own

    def _opens(self, test, value, scope, survey, left):
        """(steps from now, whether for sure) until a test may say so; (None, False) for never."""
        maybe = None
        for ahead, answer in self.motions.future(test, scope, survey, left):
            if answer is Unknown:
                maybe = 0 if maybe is None else maybe
            elif bool(answer) == value:
                return ahead, maybe is None
        return maybe, False

    def _weigh(self, side, loop, scope):
        """What a side of a branch does; of an expression that chooses a size, that it changes what the loop works on."""
        if isinstance(side, list):
            return self._evaluated(self.scale.weigh(side, loop, scope), side, scope)
        try:
            value = evaluate(side, lambda path, n: _plain(n, scope))
            return light.CHANGES if isinstance(value, int) and not isinstance(value, bool) else None
        except Exception:
            return self._evaluated(self.scale.weigh([side], loop, scope), [side], scope)

    def _evaluated(self, what, statements, scope):
        """An evaluation needs less than the training, unless it makes sizes of its own."""
        return light.CHANGES if what == light.EVALUATES and self.unseen.own(statements, scope) else what

    def _found(self, what, filename, node, ahead, certain):
        if certain and ahead <= self.allowed_steps:
            self.horizon.until = max(self.horizon.until, self.number + ahead + light.STEPS_AFTER)
            return
        self.horizon.name(self.horizon.changing if what == light.CHANGES else self.horizon.evaluating, filename, node.lineno, ahead)

    def _sizes(self, statements, scope, filename, left):
        if self._late(filename):
            return
        for node, ahead, self.horizon.turning in self.growth.places(statements, scope, left):
            soon = ahead is not None and ahead <= self.allowed_steps
            self._found(light.CHANGES, filename, node, ahead if soon else None, soon)
        for node, what in self.shifts.places(statements, scope, left):
            self.horizon.turning = self.motions.survey(node, scope).by_turns()
            self._found(what, filename, node, None, False)
        self.horizon.turning = False


ADDING = ("append", "extend", "insert", "add", "update", "setdefault", "heappush", "put", "appendleft")


def _adds_up(side, scope, depth=0):
    """Whether some statements, or the functions of the program's that they call, change a thing by what it was: the k-th time they do something else."""
    for node in sources.inside(side if isinstance(side, list) else [side]):
        if isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield)) or isinstance(node, ast.AugAssign) and not (depth and isinstance(node.target, ast.Name)):
            return True
        if isinstance(node, ast.Assign):
            lasting = [t for t in node.targets if not (depth and isinstance(t, ast.Name))]  # what a function that is called gives a name is gone with it
            names = {ast.dump(t).replace("Store()", "Load()") for t in lasting}
            if any(ast.dump(n) in names for n in ast.walk(node.value)) or any(isinstance(t, ast.Subscript) for t in lasting):
                return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
                return True
            callee = resolve(node.func, scope)
            if sources.is_users_function(callee):
                inner = sources.called(callee, node, scope)
                if inner is None or depth == 4 or _adds_up(sources.body_of(inner.node), inner, depth + 1):
                    return True
    return False


def _goes_through_optimizers(node, frame):
    """A loop that lets one optimizer after the other make the same step."""
    if not isinstance(node, ast.For):
        return False
    moment = sources.Moment(frame)
    return any(isinstance(moment.find(n.id), sys.modules["torch"].optim.Optimizer) for n in ast.walk(node.target) if isinstance(n, ast.Name))


def _plain(node, scope):
    found = resolve(node, scope)
    if not isinstance(found, PLAIN):
        raise Unknown()
    return found


def _without(body, inner):
    """The statements of an outer loop without those of the one in it, which is looked at by itself; it is passed with what it goes through."""
    kept = []
    for node in body:
        if node is inner:
            kept.append(ast.Expr(node.iter if isinstance(node, ast.For) else node.test))
        elif any(n is inner for n in ast.walk(node)):
            for name in ("body", "orelse", "finalbody"):
                kept.extend(_without(getattr(node, name, None) or [], inner))
        else:
            kept.append(node)
    return kept


def _behind_line(frame):
    module = sources.tree(frame.f_code.co_filename)
    return sources.loops_around(module, frame.f_lineno, frame.f_code.co_name)[1]


def _statement_at(frame):
    """The innermost statement that a running function is in."""
    found = []
    module = sources.tree(frame.f_code.co_filename)
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return, ast.AnnAssign, ast.AugAssign)) and node.lineno <= frame.f_lineno <= (getattr(node, "end_lineno", None) or node.lineno):
            found = [node]
    return found
