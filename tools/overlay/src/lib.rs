#![doc = include_str!("../README.md")]
use egui::{Color32, Context, Pos2, Rect, Sense, Stroke, Ui, Vec2};
use omniheap_core::{Backend, HeapOverlay, Manager, Report};
use std::collections::{BTreeMap, VecDeque};

/// Frames that the history shows: ten seconds at sixty a second.
const HISTORY: usize = 600;
/// Frames between two reports.
const REPORT_EVERY: u64 = 60;
/// Owners that are listed.
const OWNERS: usize = 10;

const HELD: Color32 = Color32::from_rgb(0x5b, 0x8d, 0xd9);
const LIVE: Color32 = Color32::from_rgb(0x4c, 0xaf, 0x6d);
const HOLE: Color32 = Color32::from_gray(0x50);

/// Bytes at one frame.
#[derive(Clone, Copy, Debug)]
struct Sample {
    held: u64,
    live: u64,
}

/// The window and its history.
#[derive(Debug, Default)]
pub struct Overlay {
    history: VecDeque<Sample>,
    report: Option<Report>,
    frame: u64,
    /// The frame from which on the report is too old.
    next_report: u64,
}

impl Overlay {
    /// Returns an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the manager and shows the window: call it once a frame.
    pub fn show<B: Backend>(&mut self, context: &Context, manager: &Manager<B>) {
        let now = manager.overlay();
        self.frame += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history
            .push_back(Sample { held: now.totals.reserved_bytes, live: now.totals.live_bytes });
        egui::Window::new("omniheap").default_width(360.0).show(context, |ui| {
            ui.label(format!(
                "{} allocations, {} of {} in {} blocks",
                now.totals.live,
                bytes(now.totals.live_bytes),
                bytes(now.totals.reserved_bytes),
                now.blocks
            ));
            history(ui, &self.history);
            for heap in &now.heaps {
                heap_row(ui, heap);
            }
            ui.collapsing("Blocks", |ui| blocks(ui, self.fresh_report(manager)));
            ui.collapsing("Owners", |ui| owners(ui, self.fresh_report(manager)));
        });
    }

    /// Returns a report that is at most a second old.
    fn fresh_report<B: Backend>(&mut self, manager: &Manager<B>) -> &Report {
        if self.frame >= self.next_report {
            self.next_report = self.frame + REPORT_EVERY;
            self.report = None;
        }
        self.report.get_or_insert_with(|| manager.report())
    }
}

/// Held and live bytes over time.
fn history(ui: &mut Ui, samples: &VecDeque<Sample>) {
    let (area, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 60.0), Sense::hover());
    let top = samples.iter().map(|sample| sample.held).max().unwrap_or(0).max(1);
    let line = |of: fn(&Sample) -> u64| -> Vec<Pos2> {
        let point = |(at, sample): (usize, &Sample)| {
            let x = area.left() + area.width() * share(at as u64, HISTORY as u64);
            Pos2::new(x, area.bottom() - area.height() * share(of(sample), top))
        };
        samples.iter().enumerate().map(point).collect()
    };
    let painter = ui.painter();
    painter.rect_filled(area, 0.0, Color32::from_gray(0x18));
    painter.line(line(|sample| sample.held), Stroke::new(1.5, HELD));
    painter.line(line(|sample| sample.live), Stroke::new(1.5, LIVE));
}

/// One heap: what is live, held and allowed.
fn heap_row(ui: &mut Ui, heap: &HeapOverlay) {
    let limit = heap.hard_limit.min(heap.size);
    ui.label(format!(
        "{}: {} live, {} held of {}",
        heap.name,
        bytes(heap.live_bytes),
        bytes(heap.reserved_bytes),
        bytes(limit)
    ));
    if let Some(driver) = heap.driver {
        ui.label(format!("driver: {} used of {}", bytes(driver.used), bytes(driver.budget)));
    }
    if heap.holes > 0 {
        let (count, free) = (heap.holes, bytes(heap.free_bytes));
        ui.label(format!("{count} holes, {free}, the largest {}", bytes(heap.largest_hole)));
    }
    let (area, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 8.0), Sense::hover());
    let painter = ui.painter();
    painter.rect_filled(area, 0.0, HOLE);
    painter.rect_filled(part(area, 0, heap.reserved_bytes, limit), 0.0, HELD);
    painter.rect_filled(part(area, 0, heap.live_bytes, limit), 0.0, LIVE);
}

/// Every block as a bar with its live spans.
fn blocks(ui: &mut Ui, report: &Report) {
    for block in report.pools.iter().flat_map(|pool| &pool.blocks) {
        let size = Vec2::new(ui.available_width(), 6.0);
        let (area, _) = ui.allocate_exact_size(size, Sense::hover());
        let painter = ui.painter();
        painter.rect_filled(area, 0.0, HOLE);
        for live in &block.live {
            let end = live.span.offset + live.span.size;
            painter.rect_filled(part(area, live.span.offset, end, block.size), 0.0, LIVE);
        }
    }
}

fn owners(ui: &mut Ui, report: &Report) {
    for (name, size) in largest(report) {
        ui.label(format!("{}: {name}", bytes(size)));
    }
}

/// Returns who holds most: by tag where there is one, else by name.
fn largest(report: &Report) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let blocks = report.pools.iter().flat_map(|pool| &pool.blocks);
    for live in blocks.flat_map(|block| &block.live) {
        let name = match (live.tag, &live.name) {
            (Some(tag), _) => format!("tag {}", tag.0),
            (None, Some(name)) => name.clone(),
            (None, None) => "unnamed".into(),
        };
        *sums.entry(name).or_default() += live.span.size;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, size)| core::cmp::Reverse(*size));
    sums.truncate(OWNERS);
    sums
}

/// Returns the part of a bar from `start` to `end` of `whole`.
fn part(bar: Rect, start: u64, end: u64, whole: u64) -> Rect {
    let at = |bytes| bar.left() + bar.width() * share(bytes, whole);
    Rect::from_min_max(Pos2::new(at(start), bar.top()), Pos2::new(at(end), bar.bottom()))
}

fn share(part: u64, whole: u64) -> f32 {
    (part as f64 / whole.max(1) as f64).min(1.0) as f32
}

fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (count.max(1).ilog2() / 10).min(4);
    format!("{:.1} {}", count as f64 / (1u64 << (10 * power)) as f64, units[power as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap_core::{HeapKind, ManagerConfig, Request, Tag};
    use omniheap_host::{Host, heap};

    /// Shows one frame and returns its texts.
    fn frame(overlay: &mut Overlay, context: &Context, manager: &Manager<Host>) -> Vec<String> {
        let mut output = context.run_ui(Default::default(), |ui| overlay.show(ui.ctx(), manager));
        output.textures_delta.clear();
        let text = |shape: &egui::epaint::ClippedShape| match &shape.shape {
            egui::Shape::Text(text) => Some(text.galley.text().to_owned()),
            _ => None,
        };
        output.shapes.iter().filter_map(text).collect()
    }

    #[test]
    fn the_window_shows_what_the_manager_holds() {
        let device = heap(HeapKind::Device, 64 << 20);
        let host = Host::builder().heap(device).open().expect("host memory");
        let manager = Manager::with_config(host, ManagerConfig::default().plain());
        let mesh = manager.allocate(&Request::new(3 << 20).name("mesh")).expect("fits");
        let (mut overlay, context) = (Overlay::new(), Context::default());
        for _ in 0..HISTORY + 10 {
            let texts = frame(&mut overlay, &context, &manager);
            assert!(overlay.history.len() <= HISTORY);
            assert!(
                texts.is_empty()
                    || texts.iter().any(|text| text.contains("1 allocations, 3.0 MiB")),
                "{texts:?}"
            );
        }
        drop(mesh);
        let texts = frame(&mut overlay, &context, &manager);
        assert!(texts.iter().any(|text| text.contains("0 allocations")), "{texts:?}");
    }

    #[test]
    fn the_largest_owners_come_first() {
        let device = heap(HeapKind::Device, 64 << 20);
        let host = Host::builder().heap(device).open().expect("host memory");
        let manager = Manager::with_config(host, ManagerConfig::default().plain());
        let asked = [
            Request::new(1 << 20).name("small"),
            Request::new(2 << 20).tag(Tag(7)),
            Request::new(2 << 20).tag(Tag(7)),
            Request::new(3 << 20).name("mesh"),
        ];
        let live: Vec<_> = asked.iter().map(|one| manager.allocate(one).expect("fits")).collect();
        let names: Vec<_> = largest(&manager.report()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["tag 7", "mesh", "small"]);
        drop(live);
    }
}
