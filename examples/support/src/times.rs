/// Milliseconds that frames took.
#[derive(Debug, Default)]
pub struct Times(pub Vec<f64>);

impl Times {
    /// Returns the time that so many of a hundred frames do not exceed.
    #[must_use]
    pub fn within(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * percent).div_ceil(100);
        sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    /// Prints median and 99th percentile, as ratios to a frame with all resident.
    pub fn print(&self, what: &str, whole: f64) {
        let (count, median, most) = (self.0.len(), self.within(50), self.within(99));
        let (usual, worst) = (median / whole, most / whole);
        println!(
            "  {what}: {count} frames, median {median:.3} ms = {usual:.2} of all resident, p99 {most:.3} ms = {worst:.2}"
        );
    }
}
