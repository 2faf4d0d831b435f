"""A benchmark as a person reads it."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ga3c.benchmark.report import ROLES, Benchmark, Spread, medians


def tables(result: Benchmark) -> RenderableType:
    return Group(_headline(result), _parts(result), _whole(result), Text(result.bottleneck(), style="bold"))


def _headline(result: Benchmark) -> Text:
    agents, predictors, trainers = result.counts
    return Text(
        f"{result.game}, {result.network} network, {result.device} {result.precision}; {result.machine}, "
        f"{result.cores} cores; N_A/N_P/N_T {agents}/{predictors}/{trainers}, "
        f"{result.environments} environments per agent; median (quartiles) of {len(result.rounds)} rounds"
    )


def _parts(result: Benchmark) -> Table:
    table = Table(title="Alone", title_justify="left")
    table.add_column("part")
    table.add_column("batch", justify="right")
    unit = "device" if result.on_gpu else "core"
    table.add_column(f"{unit}-µs per action", justify="right")
    table.add_column("")
    cost = result.over_rounds(lambda each: result.cores / each.emulation)
    rate = result.over_rounds(lambda each: each.emulation)
    label = "core-µs" if result.on_gpu else ""
    table.add_row("emulation", "", _micro(cost), f"{label} {rate.median:,.0f} actions/s on all cores".strip())
    for part, configured in (("inference", None), ("training", result.training_batch)):
        best = result.best(part)
        for size in getattr(result.rounds[0], part):
            cost = result.cost(part, size)
            notes = ["best"] * (size == best) + ["as configured"] * (size == configured)
            table.add_row(part, str(size), _micro(cost), ", ".join(notes))
    bound = result.over_rounds(result.bound)
    table.add_row("bound", "", "", f"{_count(bound)} actions/s", style="bold")
    return table


def _whole(result: Benchmark) -> Table:
    table = Table(title="Together", title_justify="left")
    table.add_column("")
    table.add_column("")
    over = result.over_rounds
    table.add_row("PPS", f"{_count(over(lambda each: each.pps))} actions/s")
    table.add_row("TPS", f"{over(lambda each: each.tps).median:,.1f} updates/s")
    table.add_row("frames", f"{over(lambda each: each.fps).median:,.0f} per second")
    table.add_row("prediction batch", f"{over(lambda each: each.prediction_batch).median:.1f}")
    table.add_row("policy lag", f"{over(lambda each: each.policy_lag).median:.1f} updates")
    for role in ("predictor", "trainer"):
        times = medians(getattr(each, f"{role}_times") for each in result.rounds)
        table.add_row(f"{role}s' time", ", ".join(f"{phase} {part:.0%}" for phase, part in times.items()))
    cores = {role: result.cores_of(role).median for role in ROLES}
    cores["idle or other"] = over(result.idle_cores).median
    table.add_row("cores", ", ".join(f"{name} {used:.2f}" for name, used in cores.items()))
    efficiency = over(result.efficiency)
    value = f"{efficiency.median:.2f} ({efficiency.low:.2f} to {efficiency.high:.2f}) of the bound"
    table.add_row("efficiency", value, style="bold")
    ratio = over(lambda each: each.pps / each.emulation)
    table.add_row("PPS / emulation alone", f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    for peer, rate in medians(each.peers for each in result.rounds).items():
        ratio = result.ratio_to(peer)
        table.add_row(peer, f"{rate:,.0f} actions/s; GA3C is {_times(ratio)} as fast")
    return table


def _times(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) times"


def _micro(cost: Spread) -> str:
    return f"{cost.median * 1e6:,.1f} ({cost.low * 1e6:,.1f} to {cost.high * 1e6:,.1f})"


def _count(rate: Spread) -> str:
    return f"{rate.median:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})"
