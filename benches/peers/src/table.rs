//! Printed tables and JSON.
use crate::measure::Figures;
use core::fmt;

/// One peer's figures for one workload; none where the peer could not serve it.
pub struct Row {
    pub peer: &'static str,
    pub workload: String,
    pub is_trace: bool,
    pub figures: Option<Figures>,
    pub peak_live: u64,
}

impl Row {
    /// Returns the bytes held over bytes live, both at their peaks.
    fn waste(&self) -> Option<f64> {
        self.figures
            .and_then(|figures| figures.reserved)
            .map(|bytes| bytes as f64 / self.peak_live as f64)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "peer": self.peer,
            "workload": self.workload,
            "ns": self.figures.map(|f| f.ns),
            "p999_ns": self.figures.map(|f| f.p999),
            "p999_without_driver_calls_ns": self.figures.and_then(|f| f.quiet_p999),
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
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        serde_json::json!({ "title": self.title, "rows": rows })
    }

    /// Returns the geometric mean over traces of what `value` sees in a peer's rows.
    fn mean(&self, peer: &str, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.is_trace && row.peer == peer);
        let logs: Option<Vec<f64>> = rows.map(|row| value(row).map(f64::ln)).collect();
        let logs = logs.filter(|logs| !logs.is_empty())?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.peers.first().copied().unwrap_or_default();
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "{:<22} {:<18} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "workload", "peer", "ns/op", "p99.9", "no calls", "ratio", "held/live"
        )?;
        let mut first = None;
        for row in &self.rows {
            let ns = row.figures.map(|figures| figures.ns);
            if row.peer == base {
                first = ns;
            }
            let ratio = ns.zip(first).map(|(ns, first)| ns / first);
            let (ns, tail) = (number(ns, 1), number(row.figures.map(|figures| figures.p999), 0));
            let quiet = number(row.figures.and_then(|figures| figures.quiet_p999), 0);
            let (ratio, waste) = (number(ratio, 2), number(row.waste(), 3));
            writeln!(
                f,
                "{:<22} {:<18} {ns:>9} {tail:>9} {quiet:>9} {ratio:>9} {waste:>9}",
                row.workload, row.peer
            )?;
        }
        let speed = |peer: &str| self.mean(peer, |row| row.figures.map(|figures| figures.ns));
        for peer in &self.peers {
            let ratio = speed(peer).zip(speed(base)).map(|(ns, first)| ns / first);
            let (ns, ratio, waste) =
                (number(speed(peer), 1), number(ratio, 2), number(self.mean(peer, Row::waste), 3));
            writeln!(
                f,
                "{:<22} {peer:<18} {ns:>9} {:>9} {:>9} {ratio:>9} {waste:>9}",
                "traces, geom. mean", "", ""
            )?;
        }
        Ok(())
    }
}
