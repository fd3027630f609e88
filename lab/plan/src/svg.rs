//! Draws a plan: time from left to right, memory from bottom to top, one rectangle per buffer and live interval.

use crate::bound::load_profile;
use crate::plan::{Plan, Status};
use crate::rng::mix;
use crate::{Interval, Problem};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 700.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;
/// Above this many buffers, rectangles too small to see are merged into one path per colour.
const MANY: usize = 3_000;

/// Draws a plan as a self-contained SVG.
///
/// Buffers are shown by their names, or by their numbers where `names` is empty. Regions are stacked with the first at the bottom. The thin line is the load: where it touches the top of the
/// picture nothing can be gained. Large problems are drawn as one path per colour without tooltips, which keeps
/// 100,000 buffers below 5 MB; buffers below a tenth of a pixel in both directions are left out.
///
/// # Cost
/// O(n log n).
#[must_use]
pub fn draw(problem: &Problem, plan: &Plan, names: &[String]) -> String {
    let scale = Scale::new(problem, plan);
    let mut out = String::new();
    header(&mut out, problem, plan);
    axes(&mut out, &scale);
    if problem.buffers.len() <= MANY {
        each(&mut out, problem, plan, names, &scale);
    } else {
        merged(&mut out, problem, plan, &scale);
    }
    limits(&mut out, problem, &scale);
    profile(&mut out, problem, &scale);
    out.push_str("</svg>\n");
    out
}

/// Scale from ticks and bytes to pixels.
struct Scale {
    start: u64,
    end: u64,
    bytes: u64,
    /// Start of each region in the stacked picture.
    base: Vec<u64>,
}

impl Scale {
    fn new(problem: &Problem, plan: &Plan) -> Self {
        let start = problem.buffers.iter().map(|b| b.live.start).min().unwrap_or(0);
        let end = problem.buffers.iter().map(|b| b.live.end).max().unwrap_or(1).max(start + 1);
        let mut base = Vec::new();
        let mut bytes = 0u64;
        for (usage, region) in plan.usage.iter().zip(&problem.regions) {
            base.push(bytes);
            // A capacity far above the peak would squeeze the picture, so it is not drawn to scale then.
            let shown =
                region.capacity.filter(|&c| c / 2 <= usage.peak).unwrap_or(0).max(usage.peak);
            bytes = bytes.saturating_add(shown);
        }
        Self { start, end, bytes: bytes.max(1), base }
    }

    #[expect(clippy::cast_precision_loss, reason = "pixels need no more than a double holds")]
    fn x(&self, tick: u64) -> f64 {
        LEFT + (tick - self.start) as f64 / (self.end - self.start) as f64 * WIDTH
    }

    #[expect(clippy::cast_precision_loss, reason = "pixels need no more than a double holds")]
    fn y(&self, bytes: u64) -> f64 {
        TOP + HEIGHT - bytes as f64 / self.bytes as f64 * HEIGHT
    }
}

fn header(out: &mut String, problem: &Problem, plan: &Plan) {
    let status = match &plan.status {
        Status::Optimal => String::from("optimal"),
        Status::Feasible { gap } => format!("at most {gap} bytes above the best"),
        Status::Undecided { excess } => format!("{excess} bytes too large"),
        Status::Infeasible { .. } => String::from("cannot fit"),
    };
    let (w, h) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + 40.0);
    // Writing to a string cannot fail, here and below, so there is no error to lose.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{} buffers, peak {} bytes, lower bound {} bytes: {status}</text>\n",
        problem.buffers.len(),
        plan.peak(),
        plan.lower_bound(),
    );
}

fn axes(out: &mut String, scale: &Scale) {
    for step in 0..=8u64 {
        let bytes = part(scale.bytes, step);
        let y = scale.y(bytes);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(bytes)
        );
        let tick = scale.start + part(scale.end - scale.start, step);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            scale.x(tick),
            TOP + HEIGHT + 18.0
        );
    }
}

/// `step` eighths of a number.
fn part(whole: u64, step: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(step) / 8).unwrap_or(whole)
}

fn short(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|u| bytes >= u.0) {
        Some(&(unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// Returns a calm colour that differs between neighbours.
fn hue(buffer: usize) -> u64 {
    mix(buffer as u64 + 1) % 24 * 15
}

/// Returns the corner, width and height of a buffer in one live interval.
fn shape(
    problem: &Problem,
    plan: &Plan,
    scale: &Scale,
    buffer: usize,
    span: Interval,
) -> (f64, f64, f64, f64) {
    let spot = plan.spots[buffer];
    let from = scale.base[spot.region].saturating_add(spot.offset);
    let (x, y) = (scale.x(span.start), scale.y(from.saturating_add(problem.buffers[buffer].size)));
    (x, y, scale.x(span.end) - x, scale.y(from) - y)
}

/// Returns a buffer's name as text of a picture.
fn label(names: &[String], buffer: usize) -> String {
    let escape =
        |name: &String| name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    names.get(buffer).map_or_else(|| format!("{buffer}"), escape)
}

fn each(out: &mut String, problem: &Problem, plan: &Plan, names: &[String], scale: &Scale) {
    for (index, buffer) in problem.buffers.iter().enumerate().filter(|(_, b)| b.size > 0) {
        let name = label(names, index);
        for span in buffer.intervals() {
            let (x, y, w, h) = shape(problem, plan, scale, index, span);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"hsl({},55%,70%)\" stroke=\"#444\" \
                 stroke-width=\"0.4\"><title>buffer {name}: {} bytes at {}, ticks {} to {}</title></rect>",
                hue(index),
                buffer.size,
                plan.spots[index].offset,
                span.start,
                span.end
            );
            if w > 30.0 && h > 12.0 {
                let (cx, cy) = (x + w / 2.0, y + h / 2.0 + 4.0);
                let _ = writeln!(
                    out,
                    "<text x=\"{cx:.1}\" y=\"{cy:.1}\" text-anchor=\"middle\">{name}</text>"
                );
            }
        }
    }
}

fn merged(out: &mut String, problem: &Problem, plan: &Plan, scale: &Scale) {
    let mut paths: BTreeMap<u64, String> = BTreeMap::new();
    for (index, buffer) in problem.buffers.iter().enumerate().filter(|(_, b)| b.size > 0) {
        for span in buffer.intervals() {
            let (x, y, w, h) = shape(problem, plan, scale, index, span);
            if w < 0.1 && h < 0.1 {
                continue;
            }
            let path = paths.entry(hue(index)).or_default();
            let _ = write!(path, "M{x:.1} {y:.1}h{w:.2}v{h:.2}h-{w:.2}z");
        }
    }
    for (hue, path) in paths {
        let _ = writeln!(
            out,
            "<path fill=\"hsl({hue},55%,70%)\" stroke=\"#444\" stroke-width=\"0.1\" d=\"{path}\"/>"
        );
    }
}

fn limits(out: &mut String, problem: &Problem, scale: &Scale) {
    for (base, region) in scale.base.iter().zip(&problem.regions) {
        let Some(top) =
            region.capacity.and_then(|c| base.checked_add(c)).filter(|&t| t <= scale.bytes)
        else {
            continue;
        };
        let y = scale.y(top);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}h{WIDTH}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"><title>capacity</title></path>"
        );
    }
}

fn profile(out: &mut String, problem: &Problem, scale: &Scale) {
    let mut path = String::new();
    let mut last = (f64::MIN, f64::MIN);
    for step in load_profile(problem) {
        let (x, y) = (scale.x(step.start), scale.y(step.bytes.min(scale.bytes)));
        // Steps closer than a tenth of a pixel cannot be told apart.
        if x - last.0 < 0.1 && (y - last.1).abs() < 0.1 {
            continue;
        }
        let _ = if path.is_empty() {
            write!(path, "M{x:.1} {y:.1}")
        } else {
            write!(path, "H{x:.1}V{y:.1}")
        };
        last = (x, y);
    }
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.2\"><title>bytes alive</title></path>"
    );
}
