//! Regret of the policy's choices: every lookup in every region.
//!
//! *Regret* is the time in the chosen region divided by the time in the fastest one: 1 is the best choice.
use super::bench::{Bench, Time};
use super::lookup::{Lookup, judged, judged_names};
use omniheap::placement::{
    DefaultPolicy, Keyword as _, Knowledge, MeasuredPolicy, Policy, Profile, Region, policy_for,
};
use omniheap_cli::Failure;
use omniheap_cli::interrupt;
use omniheap_cli::output::{self, Format};
use serde::Serialize;
use std::sync::Arc;

/// Items of one thread.
const LOAD: u32 = 6;

/// One lookup: what the policy chose, and what was fastest.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    kernel: &'static str,
    table_bytes: u64,
    pattern: &'static str,
    work: &'static str,
    dependence: &'static str,
    /// Bytes of the table that one item reads.
    reads: u32,
    reuse: u32,
    /// Bytes of the table that a group touches.
    touches: Option<u64>,
    items: u32,
    device_us: Option<f64>,
    constant_us: Option<f64>,
    shared_us: Option<f64>,
    best: &'static str,
    /// Choice of the built-in rules, and its regret.
    chosen: &'static str,
    regret: f64,
    /// The same with what was measured on the device.
    measured_chosen: Option<&'static str>,
    measured_regret: Option<f64>,
    /// True if every place gave the same numbers.
    agree: bool,
}

/// One lookup that the device did not run, and why.
#[derive(Debug, Serialize)]
struct Refused {
    backend: &'static str,
    kernel: &'static str,
    table_bytes: u64,
    error: String,
}

/// Result of one lookup.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row {
    Judged(Line),
    Refused(Refused),
}

impl Row {
    /// Returns the measurement, if it ran.
    const fn judged(&self) -> Option<&Line> {
        match self {
            Self::Judged(line) => Some(line),
            Self::Refused(_) => None,
        }
    }
}

/// Measures every lookup whose name contains `filter`.
pub(super) fn run(
    bench: &Bench,
    profile: Option<Profile>,
    filter: Option<&str>,
    format: Format,
) -> Result<(), Failure> {
    let found = profile.map(|profile| Arc::new(MeasuredPolicy { profile }) as Arc<dyn Policy>);
    let found = found.or_else(|| match policy_for(bench.manager.caps()) {
        (policy, Knowledge::Measured(_)) => Some(policy),
        _ => None,
    });
    let kernels = judged(filter.unwrap_or_default());
    if let (0, Some(part)) = (kernels.len(), filter) {
        let names = judged_names().join(", ");
        return Err(Failure::input(format!(
            "no kernel's name contains `{part}`; there are {names}"
        )));
    }
    let bar = output::progress(format, kernels.len() as u64);
    let mut rows = Vec::new();
    let count = kernels.len();
    interrupt::watch();
    for kernel in kernels.take_while(|_| !interrupt::is_wanted()) {
        bar.set_message(kernel.table.name());
        let backend = bench.manager.caps().device.backend;
        let row = row(backend, &kernel, line(bench, found.as_deref(), &kernel));
        if format == Format::Json {
            output::print_json(&row)?;
        }
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if format == Format::Text {
        show(&rows)?;
    }
    verdict(&rows)?;
    interrupt::check(rows.len(), count, "lookups were judged")
}

/// Returns the row of a lookup. A driver that rejects one kernel may run all others, so the run continues.
fn row(backend: &'static str, judged: &Lookup, line: Result<Line, Failure>) -> Row {
    let (kernel, table_bytes) = (judged.table.name(), judged.table.bytes());
    let refused = |why: Failure| Refused { backend, kernel, table_bytes, error: why.to_string() };
    line.map_or_else(|why| Row::Refused(refused(why)), Row::Judged)
}

/// Fails where a lookup was refused, naming each.
fn verdict(rows: &[Row]) -> Result<(), Failure> {
    let told = |row: &Row| match row {
        Row::Judged(_) => None,
        Row::Refused(one) => {
            let table = output::bytes(one.table_bytes);
            Some(format!("{} with {table}: {}", one.kernel, one.error))
        }
    };
    let refused: Vec<String> = rows.iter().filter_map(told).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let (count, all) = (refused.len(), rows.len());
    Err(Failure::failed(format!("{count} of {all} lookups did not run: {}", refused.join("; "))))
}

fn line(bench: &Bench, found: Option<&dyn Policy>, judged: &Lookup) -> Result<Line, Failure> {
    let measured = bench.measure(&judged.table, &[LOAD])?.remove(0);
    let request = judged.request(LOAD);
    let caps = bench.manager.caps();
    let faster = |a: &&Time, b: &&Time| a.microseconds.total_cmp(&b.microseconds);
    let best = measured.times.iter().min_by(faster).copied();
    let best = best.ok_or_else(|| Failure::failed("nothing was measured"))?;
    let judge = |policy: &dyn Policy| -> Result<(&'static str, f64), Failure> {
        let region = policy.place(&request, caps)?.region;
        // A region without a variant of this kernel is served from device memory.
        let taken = measured.of(region).or_else(|| measured.of(Region::Device));
        Ok((region.word(), taken.unwrap_or(best.microseconds) / best.microseconds))
    };
    let (chosen, regret) = judge(&DefaultPolicy)?;
    let (measured_chosen, measured_regret) = found.map(judge).transpose()?.unzip();
    Ok(Line {
        backend: caps.device.backend,
        kernel: judged.table.name(),
        table_bytes: judged.table.bytes(),
        pattern: judged.pattern.word(),
        work: judged.work.word(),
        dependence: judged.dependence.word(),
        reads: judged.reads,
        reuse: request.reuse,
        touches: request.touches,
        items: measured.items,
        device_us: measured.of(Region::Device),
        constant_us: measured.of(Region::Constant),
        shared_us: measured.of(Region::Shared),
        best: best.region.word(),
        chosen,
        regret,
        measured_chosen,
        measured_regret,
        agree: measured.agree,
    })
}

fn show(rows: &[Row]) -> Result<(), Failure> {
    let lines: Vec<&Line> = rows.iter().filter_map(Row::judged).collect();
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
    let row = |line: &&Line| {
        vec![
            line.kernel.to_owned(),
            line.table_bytes.to_string(),
            line.pattern.to_owned(),
            line.reuse.to_string(),
            number(line.device_us),
            number(line.constant_us),
            number(line.shared_us),
            line.best.to_owned(),
            line.chosen.to_owned(),
            format!("{:.3}", line.regret),
            line.measured_chosen.unwrap_or("-").to_owned(),
            line.measured_regret.map_or_else(|| "-".into(), |regret| format!("{regret:.3}")),
            if line.agree { "yes" } else { "NO" }.to_owned(),
        ]
    };
    let header = [
        "kernel",
        "bytes",
        "pattern",
        "reuse",
        "device µs",
        "constant µs",
        "shared µs",
        "best",
        "built-in rules",
        "regret",
        "profile",
        "regret",
        "agree",
    ];
    output::print_line(&output::table(&header, &lines.iter().map(row).collect::<Vec<_>>()))?;
    summary("built-in rules", lines.iter().map(|line| line.regret).collect())?;
    summary("profile", lines.iter().filter_map(|line| line.measured_regret).collect())
}

fn summary(name: &str, mut regrets: Vec<f64>) -> Result<(), Failure> {
    regrets.sort_by(f64::total_cmp);
    let (Some(middle), Some(worst)) = (regrets.get(regrets.len() / 2), regrets.last()) else {
        return Ok(());
    };
    output::print_line(&format!("{name}: median regret {middle:.3}, worst {worst:.3}"))
}

#[cfg(test)]
mod tests;
