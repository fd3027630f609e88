//! Printed tables and JSON: medians of runs, with their spread.
use crate::measure::Figures;
use core::fmt;

/// One peer's figures for one workload, one for each run; none where the peer could not serve it.
pub struct Row {
    pub peer: &'static str,
    pub workload: String,
    pub is_trace: bool,
    pub runs: Option<Vec<Figures>>,
    pub peak_live: u64,
}

/// The median of some runs, and the least and the most of them.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect::<Option<_>>()?;
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], least, most })
    }
}

impl Row {
    fn spread(&self, value: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.as_ref()?.iter().map(value))
    }

    fn ns(&self) -> Option<Spread> {
        self.spread(|figures| Some(figures.ns))
    }

    /// Returns the time in one run.
    fn ns_in(&self, run: usize) -> Option<f64> {
        Some(self.runs.as_ref()?.get(run)?.ns)
    }

    /// Returns the time as a multiple of another peer's in the same run.
    fn ratio(&self, base: &Self) -> Option<Spread> {
        let runs = 0..self.runs.as_ref()?.len();
        Spread::of(runs.map(|run| Some(self.ns_in(run)? / base.ns_in(run)?)))
    }

    /// Returns the bytes held over bytes live, both at their peaks.
    fn waste(&self) -> Option<f64> {
        let held = self.spread(|figures| figures.reserved.map(|bytes| bytes as f64));
        held.map(|held| held.median / self.peak_live as f64)
    }

    fn json(&self, base: &Self) -> serde_json::Value {
        let all = |spread: Option<Spread>| spread.map(|it| [it.least, it.median, it.most]);
        let median = |spread: Option<Spread>| spread.map(|it| it.median);
        serde_json::json!({
            "peer": self.peer,
            "workload": self.workload,
            "ns": median(self.ns()),
            "ns_least_median_most": all(self.ns()),
            "ratio_least_median_most": all(self.ratio(base)),
            "p999_ns": median(self.spread(|figures| Some(figures.p999))),
            "p999_without_driver_calls_ns": median(self.spread(|figures| figures.quiet_p999)),
            "peak_reserved_over_live": self.waste(),
        })
    }
}

/// Peers that ran the same workloads in turn; ratios are to the first.
pub struct Table {
    pub title: String,
    pub peers: Vec<&'static str>,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn json(&self) -> serde_json::Value {
        let rows: Vec<_> = self.rows.iter().map(|row| row.json(self.base(row))).collect();
        serde_json::json!({ "title": self.title, "rows": rows })
    }

    /// Returns the first peer's row of a row's workload.
    fn base(&self, row: &Row) -> &Row {
        let same = self.rows.iter().find(|one| one.workload == row.workload);
        same.expect("each workload has a row of each peer")
    }

    /// Returns the geometric mean over traces of what `value` sees in a peer's rows.
    fn mean(&self, peer: &str, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.is_trace && row.peer == peer);
        let logs: Option<Vec<f64>> = rows.map(|row| value(row).map(f64::ln)).collect();
        let logs = logs.filter(|logs| !logs.is_empty())?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// As [`mean`](Self::mean), in each run.
    fn means(&self, peer: &str, value: impl Fn(&Row, usize) -> Option<f64>) -> Option<Spread> {
        let runs = self.rows.iter().find_map(|row| Some(row.runs.as_ref()?.len()))?;
        Spread::of((0..runs).map(|run| self.mean(peer, |row| value(row, run))))
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Returns the median, and the spread in brackets.
fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".into(), |Spread { median, least, most }| {
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    })
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: medians of runs, with the least and the most of them", self.title)?;
        writeln!(
            f,
            "{:<22} {:<18} {:>22} {:>9} {:>9} {:>18} {:>9}",
            "workload", "peer", "ns/op", "p99.9", "no calls", "ratio", "held/live"
        )?;
        for row in &self.rows {
            let tail = |value: Option<Spread>| number(value.map(|it| it.median), 0);
            let all = tail(row.spread(|figures| Some(figures.p999)));
            let quiet = tail(row.spread(|figures| figures.quiet_p999));
            let (ns, ratio) = (median(row.ns(), 1), median(row.ratio(self.base(row)), 2));
            let (workload, peer, waste) = (&row.workload, row.peer, number(row.waste(), 3));
            writeln!(
                f,
                "{workload:<22} {peer:<18} {ns:>22} {all:>9} {quiet:>9} {ratio:>18} {waste:>9}"
            )?;
        }
        for peer in &self.peers {
            let ns = median(self.means(peer, Row::ns_in), 1);
            let in_run = |row: &Row, run| Some(row.ns_in(run)? / self.base(row).ns_in(run)?);
            let ratio = median(self.means(peer, in_run), 2);
            let waste = number(self.mean(peer, Row::waste), 3);
            writeln!(
                f,
                "{:<22} {peer:<18} {ns:>22} {:>9} {:>9} {ratio:>18} {waste:>9}",
                "traces, geom. mean", "", ""
            )?;
        }
        Ok(())
    }
}
