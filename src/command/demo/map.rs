//! A memory map in the terminal: one character for a stretch of bytes.
use omniheap::{BlockReport, SpanReport};

/// Characters in a line.
const WIDTH: usize = 64;
/// The least that one character stands for.
const STRETCH: u64 = 512 << 10;

/// Draws every block that has something in it.
pub(super) fn draw(blocks: &[BlockReport]) -> String {
    let used = blocks.iter().filter(|block| !block.live.is_empty());
    used.map(draw_block).collect::<Vec<_>>().join("\n")
}

fn draw_block(block: &BlockReport) -> String {
    // A reservation has more addresses than memory: what lies behind the last live span is not drawn.
    let end = block.live.iter().map(|live| live.span.offset + live.span.size).max().unwrap_or(0);
    let end = if block.holes.is_empty() { end } else { block.size.min(end.max(STRETCH)) };
    let stretch = STRETCH.max(end.div_ceil(WIDTH as u64 * 4));
    let cells: Vec<char> =
        (0..end.div_ceil(stretch)).map(|at| cell(block, at * stretch, stretch)).collect();
    let lines = cells.chunks(WIDTH).map(|line| format!("    {}", String::from_iter(line)));
    lines.collect::<Vec<_>>().join("\n")
}

/// How full one stretch is.
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
    use omniheap::{BlockNumber, Span, SpanState};

    #[test]
    fn full_half_and_empty_stretches_differ() {
        let live = |offset, size| {
            let (span, state) = (Span { offset, size }, SpanState::Movable);
            SpanReport { span, name: None, tag: None, state }
        };
        let live = vec![live(0, STRETCH), live(STRETCH * 2, STRETCH / 2)];
        let holes = vec![Span { offset: STRETCH, size: STRETCH }];
        let block = BlockReport { number: BlockNumber(0), lane: 0, size: STRETCH * 4, live, holes };
        assert_eq!(draw(&[block]), "    █·▒");
    }
}
