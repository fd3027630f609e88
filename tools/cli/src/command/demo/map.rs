//! A memory map in the terminal: one character for a stretch of bytes.
use omniheap::report::{BlockReport, SpanReport};

/// Characters in a line.
const WIDTH: usize = 64;
/// The least that one character stands for.
const STRETCH: u64 = 512 << 10;

/// Legend of the map.
pub(super) const LEGEND: &str = "· free   ░ ▒ ▓ partly live   █ live";

/// Draws every block that has something in it, short ones side by side, behind a word that says when this was.
pub(super) fn draw(when: &str, blocks: &[BlockReport]) -> String {
    let used = blocks.iter().filter(|block| !block.live.is_empty());
    let mut lines: Vec<String> = Vec::new();
    for line in used.flat_map(draw_block) {
        let fits = |last: &&mut String| last.chars().count() + 1 + line.chars().count() <= WIDTH;
        match lines.last_mut().filter(fits) {
            Some(last) => *last = format!("{last} {line}"),
            None => lines.push(line),
        }
    }
    let first = |number: usize| if number == 0 { when } else { "" };
    let lines = lines.iter().enumerate().map(|(at, line)| format!("    {:<7}{line}", first(at)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the lines of one block.
fn draw_block(block: &BlockReport) -> Vec<String> {
    // A reservation has more addresses than memory: what lies behind the last live span is not drawn.
    let end = block.live.iter().map(|one| one.span.offset + one.span.size).max().unwrap_or(0);
    let whole = block.holes.iter().map(|hole| hole.offset + hole.size).fold(end, u64::max);
    let end = if whole == block.size { whole } else { end };
    let stretch = STRETCH.max(end.div_ceil(WIDTH as u64 * 4));
    let cells: Vec<char> =
        (0..end.div_ceil(stretch)).map(|at| cell(block, at * stretch, stretch)).collect();
    cells.chunks(WIDTH).map(String::from_iter).collect()
}

/// Returns the character for how full a range is.
fn cell(block: &BlockReport, from: u64, stretch: u64) -> char {
    let to = from + stretch;
    let inside = |SpanReport { span, .. }: &SpanReport| {
        (span.offset + span.size).min(to).saturating_sub(span.offset.max(from))
    };
    let live: u64 = block.live.iter().map(inside).sum();
    match live * 4 / stretch {
        0 if live == 0 => '·',
        0 | 1 => '░',
        2 => '▒',
        3 => '▓',
        _ => '█',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap::{
        report::{BlockNumber, SpanState},
        seam::Span,
    };

    #[test]
    fn full_half_and_empty_stretches_differ() {
        let live = |offset, size| {
            let (span, state) = (Span { offset, size }, SpanState::Movable);
            SpanReport { span, name: None, tag: None, state }
        };
        let live = vec![live(0, STRETCH), live(STRETCH * 2, STRETCH / 2)];
        let holes = vec![Span { offset: STRETCH, size: STRETCH }];
        let block = BlockReport { number: BlockNumber(0), lane: 0, size: STRETCH * 4, live, holes };
        let other = BlockReport { number: BlockNumber(1), ..block.clone() };
        assert_eq!(draw("before", &[block, other]), "    before █·▒ █·▒");
    }
}
