"""Plans that change a program: which saved activations to keep, to recompute and to move so that a step fits."""

import bisect
import json
import os
import tempfile

from .._library import OmniheapError, parse_size
from . import _saved
from ._fit import _ask, command
from ._operators import Planned
from ._program import Program, Speed
from ._recorder import _asked, _known, _run

KEEP, RECOMPUTE, MOVE, PASS = "keep", "recompute", "move", "pass"
# Unit to which PyTorch rounds sizes.
_ROUND = 512
_VERSION = 2
_FIGURES = ("capacity_bytes", "peak_bytes", "plain_peak_bytes", "cost_seconds", "least_cost_seconds")
# Seconds that an operator which runs once more takes of the GPU beside its kernel. Python takes longer, but is ahead of the GPU.
_AGAIN = 5e-6


def plan_step(step, capacity, *, move=True, link="51GiB", min_bytes="64KiB", speed=None, device="cuda:0", steps=2, workspaces=None, seconds=10, gpu=None):
    """Plans which saved activations of a step to keep, to recompute and to move, so that its placed memory fits.

    Needs the command `omniheap-lab`, which the package does not bring: `cargo install --path lab/cli`.

    step, device, steps, workspaces, gpu: as for `record_step`. The step runs on fake tensors, and calls its model once.
    capacity: bytes of the device: a number, or a text such as "24GiB".
    move: whether activations may wait in host memory.
    link: bytes that a copy to the host, or back, makes in a second.
    min_bytes: smaller activations stay.
    speed: a `Speed`, which says how long operators take; by default measured if the GPU is there, else about what an H200 reaches.
    seconds: look no longer for a better plan.

    Returns a `StepPlan`: print it to see every choice; `omniheap.fit.apply(plan, model)` makes a model follow it.
    """
    capacity = parse_size("capacity", capacity, "24GiB", 1)
    command()
    return draft_step(step, move=move, link=link, min_bytes=min_bytes, speed=speed, device=device, steps=steps, workspaces=workspaces, gpu=gpu).plan(capacity, seconds)


def draft_step(step, *, move=True, link="51GiB", min_bytes="64KiB", speed=None, device="cuda:0", steps=2, workspaces=None, gpu=None):
    """Records a step once, to be planned for several capacities. Arguments as for `plan_step`; returns a `StepDraft`."""
    link = parse_size("link", link, "51GiB", 1)
    min_bytes = max(parse_size("min_bytes", min_bytes, "64KiB"), 1)
    torch, device = _asked(step, steps, True, device)
    speed = speed or Speed.known(torch, device)
    speed.check(torch)
    program = Program(torch, device, speed, min_bytes)
    gpu, known = _known(torch, program.ledger, True, device, workspaces, gpu)
    speed.says(gpu)
    _run(torch, step, program.ledger, gpu, device, steps, program, known)
    if known is not None:
        known.ends()
    program.ledger.finish()
    program.measure()
    return StepDraft(program, link if move else None, gpu.unknown())


class StepPlan:
    """Choices for a model's saved activations.

    `choices`: a list of `Choice`s. `capacity_bytes`: what it was planned for. `peak_bytes` and `plain_peak_bytes`: what is live at most, placed, with the plan, and at least without it.
    `cost_seconds`: what recomputing and moving adds to a step; no other choices need less than `least_cost_seconds`.
    `unknown`: sentences about what is not known of the GPU.
    """

    def __init__(self, choices, operators, figures, unknown=()):
        self.choices, self._operators, self._figures, self.unknown = choices, operators, figures, list(unknown)

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._figures:
            raise AttributeError(name)
        return self._figures[name]

    def bytes(self, choice):
        """Bytes of the activations that have a choice."""
        return sum(each.bytes for each in self.choices if each.choice == choice)

    def operators(self):
        """Every operator of the model's forward pass, in order, and what is done with its results."""
        return self._operators

    def save(self, path):
        """Writes the plan as JSON, to be applied elsewhere."""
        operators = [each.listed() for each in self._operators]
        _saved.write(path, json.dumps({"version": _VERSION, "figures": self._figures, "unknown": self.unknown, "choices": [vars(each) for each in self.choices], "operators": operators}))

    @classmethod
    def load(cls, path):
        """Reads a plan that was saved."""

        def make(saved):
            missing = [name for name in _FIGURES if name not in saved["figures"]]
            if missing:
                raise ValueError(f"no figure {missing[0]}")
            return cls([Choice(**each) for each in saved["choices"]], [Planned.from_list(each) for each in saved["operators"]], saved["figures"], map(str, saved.get("unknown", ())))

        return _saved.read(path, (_VERSION,), make, ("is no plan", "save it once more with StepPlan.save"))

    def __str__(self):
        lines = [f"{'choice':<10}{'bytes':>14}{'cost us':>10}  activation"]
        for each in self.choices:
            lines.append(f"{each.choice:<10}{each.bytes:>14,}{each.cost_seconds * 1e6:>10.1f}  {each.module or '(model)'}: {each.operator}")
        lines.append(f"peak {self.peak_bytes:,} bytes instead of {self.plain_peak_bytes:,}; {self.cost_seconds * 1e3:.3f} ms more, at least {self.least_cost_seconds * 1e3:.3f} ms are needed")
        return "\n".join([*lines, *self.unknown])

    def __repr__(self):
        counts = ", ".join(f"{choice}={self.bytes(choice)}" for choice in (KEEP, RECOMPUTE, MOVE))
        return f"StepPlan(activations={len(self.choices)}, {counts}, peak_bytes={self.peak_bytes})"


class Choice:
    """Treatment of one activation."""

    def __init__(self, module, operator, bytes, choice, cost_seconds):
        self.module, self.operator, self.bytes, self.choice, self.cost_seconds = module, operator, bytes, choice, cost_seconds

    def __repr__(self):
        return f"Choice({self.choice}, {self.bytes} bytes, {self.module!r}, {self.operator})"


class Floor:
    """Bytes that a step needs whatever is recomputed or moved.

    `bytes`: how many. `operator`: the one that needs them. `parts`: bytes by category: parameters, gradients, an optimizer's state and so on
    that are there, what the operator reads and writes, and activations on their way to the host or back. What kernels of cuDNN take inside is estimated.
    """

    def __init__(self, bytes, operator, parts):
        self.bytes, self.operator, self.parts = bytes, operator, parts

    def __str__(self):
        return f"{self.operator} alone needs {self.bytes} bytes ({self.listed()})"

    def listed(self):
        """The parts as a text."""
        return ", ".join(f"{category} {size}" for category, size in self.parts.items())


class StepDraft:
    """A recorded step, which can be planned for several capacities.

    `plain_peak_bytes`: what is live at most when everything is kept. `unknown`: sentences about what is not known of the GPU.
    """

    def __init__(self, program, link, unknown):
        # A tick of the planner is a nanosecond.
        self._program, self._link, self.unknown = program, link, unknown
        self._last = program.ledger.time
        if not any(value.is_dropped for value in program.values):
            raise OmniheapError("the step saves no activation of its device that is large enough; train a model, on the device that is named, inside of the step")
        twice = [type(module).__name__ for module, calls in program.calls().items() if calls > 1]
        if twice:
            raise OmniheapError(f"the step calls {twice[0]} more than once; plan a step that calls its model once, and apply the plan to each call")
        self._at = self._clock()
        self._by_life = {}
        for value in program.values:
            if value.is_dropped:
                self._by_life.setdefault(value.life, []).append(value)
        self._recipes = {}
        self._rows = self._make_rows()
        self._floor = None
        self.plain_peak_bytes = _most(self._rows)

    def floor(self):
        """The least that any plan needs: a `Floor`. Placed, a plan may need somewhat more."""
        if self._floor is None:
            answer, _ = self._solve(1, 1)
            self._floor = self._floor_of(answer["floor"])
        return self._floor

    def _clock(self):
        """Returns the time at which each operator begins; the last entry is the end."""
        now, at = 0, []
        for time in range(self._program.began_at, self._last + 2):
            at.append(now)
            now += max(1, round(self._program.seconds.get(time, 0) * 1e9))
        return at

    def _tick(self, time):
        return self._at[min(max(time - self._program.began_at, 0), len(self._at) - 1)]

    def plan(self, capacity, seconds=10):
        """Plans the step for a capacity: a `StepPlan`."""
        capacity = parse_size("capacity", capacity, "24GiB", 1)
        answer, chosen = self._solve(capacity, seconds)
        if answer["status"] == "infeasible":
            floor = self._floor_of(answer["floor"])
            raise OmniheapError(
                f"{floor.operator} alone needs {floor.bytes} bytes, whatever is recomputed or moved, and the capacity is {capacity} "
                f"(live then: {floor.listed()}; of which what kernels take inside is an estimate, unless `workspaces` has it); make the batch smaller, or give it more"
            )
        if answer["status"] == "undecided":
            raise OmniheapError(f"no plan for {capacity} bytes was found in {seconds} s, and none was excluded; allow more bytes or seconds")
        return self._answer(capacity, chosen, answer)

    def _solve(self, capacity, seconds):
        """Returns the planner's answer, and its choice for each row."""
        problem = {"version": 1, "regions": [{"capacity": capacity, "alignment": _ROUND}], "buffers": self._rows}
        turn = self._program.turn
        if self._link and turn is not None:
            problem["copies"] = {"turn": self._tick(turn), "bytes_per_tick": max(1, self._link // 10**9)}
        with tempfile.TemporaryDirectory() as folder:
            asked, answered = os.path.join(folder, "step.json"), os.path.join(folder, "plan.json")
            with open(asked, "w", encoding="utf-8") as file:
                json.dump(problem, file)
            answer = _ask("plan", asked, f"--plan={answered}", f"--time-limit={seconds}")
            if answer["status"] in ("infeasible", "undecided"):
                return answer, {}
            with open(answered, encoding="utf-8") as file:
                return answer, {row["id"]: row.get("choice") for row in json.load(file)["buffers"]}

    def _floor_of(self, found):
        tick, needed = found
        time = bisect.bisect_right(self._at, tick) - 1 + self._program.began_at
        parts = {}
        for row in self._rows:
            idle = row.get("idle", (0, 0))
            if row["lower"] <= tick < row["upper"] and not idle[0] <= tick < idle[1]:
                for category, size in self._categories(row):
                    parts[category] = parts.get(category, 0) + size
        copied = needed - sum(parts.values())
        if copied > 0:
            parts["on its way"] = copied
        return Floor(needed, self._program.names.get(time, "the beginning of the step"), dict(sorted(parts.items())))

    def _categories(self, row):
        """Categories of a row's bytes."""
        if row["id"] == "resident":
            return self._resident
        number = int(row["id"].partition("/")[0])
        return [("activation" if number in self._by_life else self._program.lives.all[number][3][0], row["size"])]

    def _make_rows(self):
        began, lives = self._program.began_at, self._program.lives.all
        seconds = {value.second for values in self._by_life.values() for value in values}
        rows, self._resident = [], []
        for number, (size, birth, death, label) in enumerate(lives):
            size = -(-size // _ROUND) * _ROUND
            if number in seconds or (death is not None and death <= began):
                continue
            if number in self._by_life:
                rows += self._saved(number, size, birth, death)
            elif birth <= began and death is None:
                self._resident.append((label[0], size))
            else:
                rows.append(_row(number, size, self._tick(birth), self._tick(self._last + 1 if death is None else death + 1)))
        idle = {row["id"] for row in rows if "idle" in row}
        for row in rows:
            if "recompute" in row:
                # Activations that are never away are always there.
                row["recompute"]["reads"] = [each for each in row["recompute"]["reads"] if each in idle]
        if self._resident:
            rows.append(_row("resident", sum(size for _, size in self._resident), 0, self._at[-1] + 1))
        return rows

    def _saved(self, number, size, birth, death):
        """A storage that autograd keeps, as if it were kept; with its idle span where it may be dropped, from the last write on."""
        values = self._by_life[number]
        seconds = [self._program.lives.all[value.second][2] for value in values if value.second is not None]
        ends = [*(self._last if each is None else each for each in seconds), *(value.released_at or self._last for value in values)]
        end = max(ends + [self._last if death is None else death])
        row = _row(number, size, self._tick(birth), self._tick(end + 1))
        value = values[0]
        wanted = value.wanted_at or value.released_at or self._last
        idle = [self._tick(self._last if death is None else death + 1), self._tick(wanted)]
        if len(values) > 1 or value.is_overwritten or not row["lower"] < idle[0] < idle[1] < row["upper"]:
            return [row]
        rows, made = [row], self._tick(value.made_at)
        if made > row["lower"]:
            # A storage's last write may read what is younger than the storage.
            rows.append(_row(f"{number}/before", size, row["lower"], made))
            row["lower"] = made
        row["idle"] = idle
        recipe = self._program.recipe(value)
        if recipe is not None:
            operators, reads = recipe
            self._recipes[number] = value, operators
            known = [str(each.life) for each in reads if each.life != number]
            scratch = sum(self._size(each.life) for operator in operators for each in operator.writes if each is not value)
            row["recompute"] = {"cost": round(sum(operator.seconds + _AGAIN for operator in operators) * 1e9), "reads": known, "scratch": scratch}
        if self._link:
            # One of the two copies is seldom hidden: activations that move come in bursts.
            row["move_cost"] = round((2 * _AGAIN + size / self._link) * 1e9)
        return rows

    def _size(self, life):
        return -(-self._program.lives.all[life][0] // _ROUND) * _ROUND

    def _answer(self, capacity, chosen, answer):
        sizes = self._program.lives.all
        planned = {operator: operator.planned(sizes) for operator in self._program.operators}
        choices = []
        for row in self._rows:
            choice = chosen.get(str(row["id"]))
            if choice is None:
                continue
            value = self._by_life[int(row["id"])][0]
            cost = {KEEP: 0, RECOMPUTE: row.get("recompute", {}).get("cost", 0), MOVE: row.get("move_cost", 0)}[choice]
            operator = value.operator
            choices.append(Choice(operator.call, operator.name, row["size"], choice, cost / 1e9))
            if choice == MOVE:
                planned[operator].outputs[value.output] = MOVE
            elif choice == RECOMPUTE:
                self._mark(planned, value)
        values = capacity, answer["peak"], self.plain_peak_bytes, answer["cost"] / 1e9, answer["cost_lower_bound"] / 1e9
        return StepPlan(choices, list(planned.values()), dict(zip(_FIGURES, values)), self.unknown)

    def _mark(self, planned, value):
        """Notes what must be known to compute a value again: its operators, and results between them."""
        for operator in self._recipes[value.life][1]:
            planned[operator].runs_again = True
            for each in operator.writes:
                if not each.is_saved:
                    planned[operator].outputs.setdefault(each.output, PASS)
        planned[value.operator].outputs[value.output] = RECOMPUTE


def _row(number, size, lower, upper):
    return {"id": str(number), "lower": lower, "upper": max(upper, lower + 1), "size": size}


def _most(rows):
    """The most bytes that are live at once."""
    events = sorted([(row["upper"], -row["size"]) for row in rows] + [(row["lower"], row["size"]) for row in rows])
    live = most = 0
    for _, change in events:
        live += change
        most = max(most, live)
    return most
